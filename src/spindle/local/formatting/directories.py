"""Formatting the log directories of a node (KIP-631, KIP-853, KIP-858).

A directory gets its files first and its `meta.properties` last, so that a directory whose format
was cut short is not taken for a formatted one. The metadata directory comes after the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from spindle.common.ids import METADATA_PARTITION
from spindle.common.ports import FileSystem
from spindle.common.text import error_text
from spindle.common.uuids import Uuid, UuidSource
from spindle.disks.identity import (
    DirectoryEnsemble,
    check_ensemble,
    load_ensemble,
    new_directory_id,
)
from spindle.local.errors import FormatError
from spindle.local.formatting.feature_levels import StartingLevels
from spindle.local.formatting.initial_controllers import InitialController, voter_set
from spindle.log.formats.meta_properties import MetaProperties, write_meta_properties
from spindle.metadata.features import metadata_version_name
from spindle.metadata_log.snapshots import snapshot_file_name
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    UserScramCredentialRecord,
)
from spindle.protocol.metadata_frame import frame
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import build_control_batch
from spindle.raft.kraft_records import kraft_version, snapshot_footer, snapshot_header, voters
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID
from spindle.raft.voters import VoterSet
from spindle.security.secret import HIDDEN

_RECORD_VERSION: Final = 0
_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """The directories to format, and their contents.

    Attributes:
        log_dirs: as configured; `metadata_log_dir` may be one of them or another.
        initial_controllers: ascending by node id; empty without `--standalone` and
            `--initial-controllers`.
        controller_listener: name of the listener by which the initial controllers are reached.
        is_controller: controllers alone get the bootstrap snapshot, as with Kafka 4.4.
    """

    cluster_id: str
    node_id: int
    log_dirs: Sequence[str]
    metadata_log_dir: str
    levels: StartingLevels
    controller_listener: str
    initial_controllers: tuple[InitialController, ...] = ()
    scram_credentials: tuple[UserScramCredentialRecord, ...] = ()
    ignore_formatted: bool = False
    is_controller: bool = True


def format_directories(
    request: FormatRequest,
    file_system: FileSystem,
    new_uuid: UuidSource,
    now_ms: int,
    tell: Callable[[str], None],
    *,
    shows_records: bool = False,
) -> None:
    """Format the directories that are not formatted yet; call `tell` with each line of the report.

    Args:
        shows_records: the report begins with the first records of the metadata.

    Raises:
        ConfigError: the directories belong to another cluster or node.
        FormatError: a directory is formatted already, none can be used, or one cannot be written.
    """
    data_dirs = sorted({*request.log_dirs} - {request.metadata_log_dir})
    ensemble = load_ensemble(file_system, (*data_dirs, request.metadata_log_dir))
    check_ensemble(ensemble, request.node_id, request.cluster_id)
    order = [*data_dirs, request.metadata_log_dir]
    formatted = [directory for directory in order if directory in ensemble.formatted]
    if formatted and not request.ignore_formatted:
        raise FormatError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore "
            "this directory and format the others."
        )
    for directory in ensemble.failed:
        tell(f"I/O error trying to read log directory {directory}. Ignoring...")
    if not ensemble.unformatted and not ensemble.formatted:
        reasons = "; ".join(ensemble.failed.values())
        raise FormatError(f"No available log directories to format. {reasons}")
    if not ensemble.unformatted:
        tell("All of the log directories are already formatted.")
        return
    records = bootstrap_records(request)
    if shows_records:
        tell(f"Bootstrap metadata: {_described(records, request.levels.metadata_version)}")
    ids = _directory_ids(request, ensemble, new_uuid)
    for directory in order:
        if directory in ids:
            tell(
                f"Formatting {_kind(request, directory)} {directory} with metadata.version "
                f"{metadata_version_name(request.levels.metadata_version)}."
            )
            _format_one(request, file_system, directory, ids[directory], records, now_ms)


def bootstrap_records(request: FormatRequest) -> list[Message]:
    """Return the first records of the metadata log of the new cluster."""
    levels = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in request.levels.recorded()
    ]
    return [*levels, *request.scram_credentials]


def _directory_ids(
    request: FormatRequest, ensemble: DirectoryEnsemble, new_uuid: UuidSource
) -> dict[str, Uuid]:
    """Return an id for each directory to format; the metadata directory of a voter has the voter's
    id.
    """
    taken = [p.directory_id for p in ensemble.formatted.values() if p.directory_id is not None]
    taken += [controller.directory_id for controller in request.initial_controllers]
    own = {c.node_id: c.directory_id for c in request.initial_controllers}.get(request.node_id)
    ids = {}
    for directory in ensemble.unformatted:
        if directory == request.metadata_log_dir and own is not None:
            ids[directory] = own
        else:
            ids[directory] = new_directory_id(new_uuid, taken)
        taken.append(ids[directory])
    return ids


def _kind(request: FormatRequest, directory: str) -> str:
    if directory != request.metadata_log_dir:
        return "data directory"
    if not request.initial_controllers:
        return "metadata directory"
    if any(c.node_id == request.node_id for c in request.initial_controllers):
        return "dynamic metadata voter directory"
    return "dynamic metadata directory"


def _format_one(
    request: FormatRequest,
    file_system: FileSystem,
    directory: str,
    directory_id: Uuid,
    records: Sequence[Message],
    now_ms: int,
) -> None:
    properties = MetaProperties(
        cluster_id=request.cluster_id, node_id=request.node_id, directory_id=directory_id
    )
    try:
        file_system.make_directories(directory)
        if request.is_controller and directory == request.metadata_log_dir:
            _write_bootstrap_snapshot(request, file_system, records, now_ms)
        write_meta_properties(file_system, directory, properties, now_ms)
    except OSError as error:
        reason = error_text(error)
        raise FormatError(f"Error while writing to log directory {directory}: {reason}") from None


def _write_bootstrap_snapshot(
    request: FormatRequest, file_system: FileSystem, records: Sequence[Message], now_ms: int
) -> None:
    partition = f"{request.metadata_log_dir}/{METADATA_PARTITION}"
    voters = None
    if request.initial_controllers:
        voters = voter_set(request.initial_controllers, request.controller_listener)
    file_system.make_directories(partition)
    file_system.write_atomically(
        f"{partition}/{snapshot_file_name(BOOTSTRAP_SNAPSHOT_ID)}",
        bootstrap_snapshot(records, voters, request.levels.kraft_version, now_ms),
    )


def _described(records: Sequence[Message], metadata_level: int) -> str:
    """Return the records in the words of Kafka's tool, which scripts search for."""
    shown = ", ".join(
        f"ApiMessageAndVersion({_record_text(record)} at version 0)" for record in records
    )
    return (
        f"BootstrapMetadata(records=[{shown}], metadataVersionLevel={metadata_level}, "
        "source=format command)"
    )


def _record_text(record: Message) -> str:
    if isinstance(record, FeatureLevelRecord):
        return f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
    assert isinstance(record, UserScramCredentialRecord), record
    return (
        f"UserScramCredentialRecord(name='{record.name}', mechanism={record.mechanism}, "
        f"salt={HIDDEN}, storedKey={HIDDEN}, serverKey={HIDDEN}, iterations={record.iterations})"
    )


def bootstrap_snapshot(
    records: Sequence[Message], voter_set: VoterSet | None, level: int, now_ms: int
) -> bytes:
    """Return the snapshot at offset 0, epoch 0, of a formatted directory (KIP-1170).

    It has the first metadata of a new cluster, and the first voters of a dynamic quorum (KIP-853).

    Args:
        voter_set: the first voters; None if they are static or join later.
        level: of kraft.version.
    """
    head = [snapshot_header(now_ms)]
    if level > 0:
        head.append(kraft_version(level))
    if voter_set is not None:
        head.append(voters(voter_set))
    values = [
        SimpleRecord(value=frame(record, _RECORD_VERSION), timestamp_ms=now_ms)
        for record in records
    ]
    return b"".join(
        (
            build_control_batch(head, now_ms, 0, _EPOCH),
            build_batch(values, base_offset=len(head), leader_epoch=_EPOCH),
            build_control_batch([snapshot_footer()], now_ms, len(head) + len(values), _EPOCH),
        )
    )
