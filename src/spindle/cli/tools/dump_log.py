"""`kafka-dump-log`: the content of segments, indexes, and snapshots of producers and metadata."""

from pathlib import Path
from typing import Final

import click

from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.dump_records import (
    Decoder,
    group_record,
    metadata_record,
    plain_text,
    share_group_record,
    transaction_record,
)
from spindle.cli.tools.dump_remote_log import remote_log_record
from spindle.cli.tools.dump_segment import SegmentDump
from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.options import Declaration, Option, Options
from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.filesystem import OsFileSystem
from spindle.log.formats.index_entries import OFFSET_ENTRY, TIME_ENTRY
from spindle.log.formats.producer_snapshot import read_producer_snapshot
from spindle.log.formats.transaction_index import (
    TRANSACTION_INDEX_VERSION,
    decode_aborted_transactions,
)

_FAILED: Final = 1
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
_DECODERS: Final[dict[str, Decoder]] = {
    "offsets-decoder": group_record,
    "transaction-log-decoder": transaction_record,
    "cluster-metadata-decoder": metadata_record,
    "remote-log-metadata-decoder": remote_log_record,
    "share-group-state-decoder": share_group_record,
    "print-data-log": plain_text,
}
"""The decoders by their options. If several options are given, the first one in this list is
used."""

DECLARATION: Final = Declaration(
    "Print the content of segments, indexes and snapshots.",
    [
        Option(
            "files",
            f"Files: {', '.join(_SUFFIXES)}.",
            "f1,f2,...",
        ),
        Option("deep-iteration", "Show records, not only batches."),
        Option("print-data-log", "Show keys and values, too."),
        Option("skip-record-metadata", "Leave out the numbers of records."),
        Option("offsets-decoder", "Show records of __consumer_offsets as JSON."),
        Option("transaction-log-decoder", "Show records of __transaction_state as JSON."),
        Option("cluster-metadata-decoder", "Show metadata records as JSON."),
        Option("remote-log-metadata-decoder", "Show records of __remote_log_metadata."),
        Option("share-group-state-decoder", "Show records of __share_group_state as JSON."),
        Option("index-sanity-check", "Only check that indexes are well formed."),
        Option("verify-index-only", "Check that indexes agree with their segment."),
        Option("max-bytes", "Stop after this many bytes of a segment.", "bytes"),
        Option("max-message-size", "Accepted; records of any size are read.", "bytes"),
    ],
    examples=(
        "spindle kafka dump-log --files /disk1/orders-0/00000000000000000000.log --print-data-log",
    ),
)


def _run(options: Options) -> int:
    options.require("files")
    code = 0
    for name in options.text("files").split(","):
        click.echo(f"Dumping {name}")
        try:
            code = max(code, _dump(Path(name), options))
        except (CorruptLog, CorruptRecords) as error:
            click.echo(f"{name}: {error}", err=True)
            code = _FAILED
    return code


def _dump(path: Path, options: Options) -> int:
    match path.suffix:
        case ".log" | ".checkpoint":
            return _dump_segment(path, options)
        case ".index":
            return _dump_offset_index(path, options)
        case ".timeindex":
            return _dump_time_index(path, options)
        case ".txnindex":
            _dump_aborted(path)
        case ".snapshot":
            _dump_producers(path)
        case _:
            click.echo(f"Ignoring unknown file {path}", err=True)
    return 0


def _dump_segment(path: Path, options: Options) -> int:
    decoder = next((_DECODERS[name] for name in _DECODERS if options.has(name)), None)
    dump = SegmentDump(
        with_records=decoder is not None or options.has("deep-iteration"),
        with_numbers=not options.has("skip-record-metadata"),
        decoder=decoder,
    )
    for line in dump.head(path.name):
        click.echo(line)
    data = _read(path)
    limit = options.integer("max-bytes")
    for line in dump.lines(data if limit is None else data[:limit]):
        click.echo(line)
    if dump.trailing_bytes and limit is None:
        click.echo(f"Found {dump.trailing_bytes} invalid bytes at the end of {path.name}")
    return _FAILED if dump.invalid else 0


def _dump_offset_index(path: Path, options: Options) -> int:
    data = _read(path)
    base = base_offset(path)
    if not data:
        click.echo(f"{path} is empty.")
        return 0
    if len(data) % OFFSET_ENTRY.size:
        raise CorruptLog(str(path), len(data), f"not a multiple of {OFFSET_ENTRY.size} bytes")
    if options.has("index-sanity-check"):
        click.echo(f"{path} passed sanity check.")
        return 0
    starts = _batch_starts(path.with_suffix(".log"))
    wrong = []
    for number, (relative, position) in enumerate(OFFSET_ENTRY.iter_unpack(data)):
        offset = base + relative
        if number and not relative:
            # The rest was preallocated and never written.
            break
        if starts.get(position, offset + 1) > offset:
            wrong.append((offset, position))
        if not options.has("verify-index-only"):
            click.echo(f"offset: {offset} position: {position}")
    for offset, position in wrong:
        click.echo(
            f"Index offset {offset} does not point to a batch at position {position} in "
            f"{path.with_suffix('.log').name}",
            err=True,
        )
    return _FAILED if wrong else 0


def _batch_starts(segment: Path) -> dict[int, int]:
    """Return the base offsets of the batches by position."""
    dump = SegmentDump(with_records=False, with_numbers=True)
    return dump.batch_starts(_read(segment))


def _dump_time_index(path: Path, options: Options) -> int:
    data = _read(path)
    base = base_offset(path)
    if len(data) % TIME_ENTRY.size:
        raise CorruptLog(str(path), len(data), f"not a multiple of {TIME_ENTRY.size} bytes")
    if options.has("index-sanity-check"):
        click.echo(f"{path} passed sanity check.")
        return 0
    last = -1
    code = 0
    for timestamp_ms, relative in TIME_ENTRY.iter_unpack(data):
        if timestamp_ms == 0 and relative == 0 and last >= 0:
            break
        if timestamp_ms < last:
            click.echo(f"timestamp {timestamp_ms} follows {last} in {path.name}", err=True)
            code = _FAILED
        last = timestamp_ms
        if not options.has("verify-index-only"):
            click.echo(f"timestamp: {timestamp_ms} offset: {base + relative}")
    return code


def _dump_aborted(path: Path) -> None:
    for entry in decode_aborted_transactions(str(path), _read(path)):
        click.echo(
            f"version: {TRANSACTION_INDEX_VERSION} producerId: {entry.producer_id} "
            f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )


def _dump_producers(path: Path) -> None:
    for entry in read_producer_snapshot(OsFileSystem(), str(path)):
        first = entry.current_transaction_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: "
            f"{'OptionalLong.empty' if first is None else f'OptionalLong[{first}]'} "
            f"lastTimestamp: {entry.last_timestamp_ms} "
        )
        for batch in entry.batches:
            line += (
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
                f"timestamp: {batch.timestamp_ms}"
            )
        click.echo(line)


def base_offset(path: Path) -> int:
    """Return the offset with which the name of a segment or index begins.

    Raises:
        ToolFailed: the name does not begin with a number.
    """
    text = path.name.partition(".")[0]
    if not text.isdecimal():
        raise ToolFailed(f"{path.name} does not begin with an offset")
    return int(text)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolFailed(f"{path}: {error.strerror}", "java.nio.file.NoSuchFileException") from None


dump_log = ToolCommand("dump-log", DECLARATION, _run)
