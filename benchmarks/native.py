"""The loops that have native code, with it and in Python: compaction's, and those of the audit.

    python -m benchmarks.native [--rounds N] [--against CHECKOUT]

Each round is a process for each side, in turns. The figures are megabytes of batches for each
second of CPU time, the best of all rounds; the ratio is the median of the rounds. With `--against`,
the other side is the native code of another checkout, which has this program, too.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from spindle.audit.segment_audit import SegmentAudit
from spindle.columnar.segment_files import SegmentFile
from spindle.common import native
from spindle.log.cleaning.cleaning import new_key_map
from spindle.log.cleaning.key_map import CopyRules, MapSize
from spindle.log.formats.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from spindle.log.segments.segment import IndexProgress
from spindle.protocol.records.builder import SimpleRecord, build_batch

TOP: Final = Path(__file__).parents[1]
MB: Final = 1_000_000
_CHUNKS: Final = 8
_BATCHES: Final = 60
_BATCH_BYTES: Final = 16_000
_KEYS: Final = 1_000_000
_REPETITIONS: Final = 5
_MAP_BYTES: Final = 128 << 20


def chunks_of_batches(value_bytes: int) -> tuple[list[bytes], int]:
    """Return chunks of uncompressed batches with random keys, and the offset after them."""
    source, base, chunks = random.Random(7), 0, []
    per_batch = max(1, _BATCH_BYTES // (value_bytes + 30))
    for _ in range(_CHUNKS):
        chunk = bytearray()
        for _ in range(_BATCHES):
            records = [
                SimpleRecord(
                    b"customer-%010d" % source.randrange(_KEYS),
                    source.randbytes(value_bytes),
                    10**12 + n,
                )
                for n in range(per_batch)
            ]
            chunk += build_batch(records, base)
            base += per_batch
        chunks.append(bytes(chunk))
    return chunks, base


def rate(size_bytes: int, work: Callable[[], None]) -> float:
    """Return megabytes for each second of CPU time, the best of some repetitions."""
    best_s = float("inf")
    for _ in range(_REPETITIONS):
        began_s = time.process_time()
        work()
        best_s = min(best_s, time.process_time() - began_s)
    return size_bytes / MB / best_s


def rates_of_compaction(chunks: list[bytes], end: int) -> dict[str, float] | None:
    """Return the rates of the key map and of the copies; None without native code.

    In Python, compaction has no loops over whole chunks; `benchmarks.run` measures whole passes.
    """
    if not native.is_native_available():
        return None
    size_bytes = sum(map(len, chunks))
    keys = new_key_map(MapSize(_MAP_BYTES, 0.9, end), is_native=True)

    def note_keys() -> None:
        for chunk in chunks:
            assert keys.put_batches(chunk, 0, 0, end)[0] == len(chunk)

    def copy(known_end: int) -> None:
        rules = CopyRules(known_end, end + 1, 0, 0, [], 4096)
        copier = keys.copier(rules, max(map(len, chunks)))
        assert copier is not None
        for chunk in chunks:
            assert copier.copy(chunk, 0, IndexProgress(-1, -1, 0)).next_position == len(chunk)

    rates = {"compaction: keys": rate(size_bytes, note_keys)}
    rates["compaction: copy of what stays"] = rate(size_bytes, lambda: copy(end))
    rates["compaction: copy of all"] = rate(size_bytes, lambda: copy(0))
    keys.close()
    return rates


def rates_of_audit(chunks: list[bytes], folder: Path) -> dict[str, float]:
    """Return the rates of the audit of one segment, without and with its records."""
    path = folder / f"{0:020}{LOG_SUFFIX}"
    path.write_bytes(b"".join(chunks))
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        path.with_suffix(suffix).touch()
    segment = SegmentFile(0, path.stat().st_size, path)

    def audit(checks_records: bool) -> None:
        checks = SegmentAudit(
            folder, segment, [], checks_records=checks_records, on_bytes=lambda size_bytes: None
        )
        assert checks.run(is_finished=False).findings == ()

    return {
        "audit": rate(segment.size_bytes, lambda: audit(False)),
        "audit, records": rate(segment.size_bytes, lambda: audit(True)),
    }


def measure() -> dict[str, float]:
    """Return the rates of this process."""
    rates: dict[str, float] = {}
    for value_bytes in (100, 1000):
        chunks, end = chunks_of_batches(value_bytes)
        with tempfile.TemporaryDirectory() as folder:
            some = rates_of_audit(chunks, Path(folder)) | (rates_of_compaction(chunks, end) or {})
        rates |= {f"{name}, {value_bytes} B": value for name, value in some.items()}
    return rates


def measured(checkout: Path, *options: str) -> dict[str, float]:
    """Return the rates of a process of its own."""
    command = [str(checkout / ".venv/bin/python"), "-m", "benchmarks.native", "--once", *options]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--against", type=click.Path(file_okay=False, exists=True), help="Another checkout.")
@click.option("--once", is_flag=True, help="Measure in this process, and print JSON.")
@click.option("--python", "is_python", is_flag=True, help="With --once: without native code.")
def main(rounds: int, against: str | None, once: bool, is_python: bool) -> None:
    """Print a table of the rates, and their ratio."""
    if is_python:
        native.PACKAGE = Path()  # type: ignore[misc]  # no library is there
    if once:
        click.echo(json.dumps(measure()))
        return
    if not native.is_native_available():
        sys.exit(native.native_text())
    other = (Path(against).resolve(), []) if against else (TOP, ["--python"])
    own_rounds, other_rounds = [], []
    for _ in range(rounds):
        own_rounds.append(measured(TOP))
        other_rounds.append(measured(other[0], *other[1]))
    click.echo(f"{'MB/s':<40}{'native':>10}{'other' if against else 'Python':>10}{'ratio':>8}")
    for name in own_rounds[0]:
        own = [rates[name] for rates in own_rounds]
        line = f"{name:<40}{max(own):>10,.0f}"
        if name in other_rounds[0]:
            others = [rates[name] for rates in other_rounds]
            ratio = statistics.median(a / b for a, b in zip(own, others, strict=True))
            line += f"{max(others):>10,.0f}{ratio:>8.2f}"
        click.echo(line)


if __name__ == "__main__":
    main()
