"""Opens the local member of the metadata quorum from the configuration."""

from collections.abc import Callable, Sequence
from typing import Final

from spindle.common.errors import ConfigError, CorruptLog, UnsupportedMetadata
from spindle.common.ids import Endpoint
from spindle.common.ports import FileSystem, RandomSource
from spindle.common.uuids import Uuid
from spindle.config.node_config import NodeConfig
from spindle.disks.executor import DirectoryExecutor
from spindle.log.storage import LogStorage
from spindle.metadata.features import check_feature_level
from spindle.metadata_log.metadata_log import MetadataLog, RetentionSettings
from spindle.metadata_log.partition_log import DIRECTORY_NAME, PartitionLog, metadata_log_config
from spindle.metadata_log.snapshots import read_snapshot, snapshot_file_name
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID
from spindle.raft.settings import LocalNode, QuorumSettings
from spindle.raft.voters import ReplicaKey, Voter, VoterSet
from spindle.runtime.peers.links import PeerLinks
from spindle.runtime.peers.security import PeerSecurity
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum

_OPEN_FILES: Final = 16

_BOOTSTRAP_FILES: Final = (
    f"{DIRECTORY_NAME}/{snapshot_file_name(BOOTSTRAP_SNAPSHOT_ID)}",
    "bootstrap.checkpoint",
)
"""The files with the first records in formatted directories, of Kafka 4.4 and of older releases;
the first file may hold only voters."""


async def open_quorum(
    config: NodeConfig,
    *,
    metadata_log_dir: str,
    cluster_id: str,
    directory_id: Uuid,
    endpoints: Sequence[Endpoint],
    file_system: FileSystem,
    thread: DirectoryExecutor,
    security: PeerSecurity,
    random: RandomSource,
    clock: Callable[[], int],
    on_fault: Callable[[BaseException], None],
) -> RaftMetadataQuorum:
    """Return the quorum, not started yet.

    Args:
        endpoints: this node's controller listeners with the addresses for other nodes, the default
            one first.
        security: the security of the controller listener of other nodes.

    Raises:
        ConfigError: a newer release has formatted the directory.
    """
    integer = config.integer
    storage = LogStorage(file_system, metadata_log_dir, _OPEN_FILES)
    log_config = metadata_log_config(
        config.optional_integer("internal.metadata.log.segment.bytes")
        or integer("metadata.log.segment.bytes"),
        integer("metadata.log.segment.ms"),
        integer("internal.metadata.delete.delay.millis"),
    )
    partition_log = await thread.submit(PartitionLog.open, storage, log_config, clock())
    if config.is_controller and partition_log.log_end_offset == 0:
        _check_starting_levels(file_system, metadata_log_dir)
    metadata_log = MetadataLog(
        file_system,
        f"{metadata_log_dir}/{DIRECTORY_NAME}",
        partition_log,
        RetentionSettings(
            integer("metadata.max.retention.bytes"), integer("metadata.max.retention.ms")
        ),
    )
    listener = config.controller_listener_names[0]
    local = LocalNode(
        ReplicaKey(config.node_id, directory_id),
        cluster_id,
        listener,
        tuple(endpoints),
        config.is_controller,
    )
    return RaftMetadataQuorum(
        local,
        _settings(config),
        _static_voters(config, listener),
        metadata_log,
        thread,
        PeerLinks(
            f"raft-client-{config.node_id}",
            integer("controller.quorum.request.timeout.ms") / 1000,
            security,
        ),
        random,
        clock,
        on_fault,
    )


def read_bootstrap_records(file_system: FileSystem, metadata_log_dir: str) -> list[Message]:
    """Return the first records of a new cluster; none if no file has any.

    Call it only while the metadata log is empty: later, a damaged file does no harm.

    Raises:
        CorruptLog: a file is damaged.
    """
    for name in _BOOTSTRAP_FILES:
        path = f"{metadata_log_dir}/{name}"
        if not file_system.exists(path):
            continue
        batches = list(read_snapshot(file_system.read_bytes(path), path))
        if records := [record for batch in batches for record in batch.records]:
            return records
    return []


def _check_starting_levels(file_system: FileSystem, metadata_log_dir: str) -> None:
    """Refuse the first records of a new cluster if this release does not support their levels.

    The metadata log is empty, so nothing is lost if the directory is formatted again.

    Raises:
        ConfigError: names the level, or the file that is damaged.
    """
    try:
        records = read_bootstrap_records(file_system, metadata_log_dir)
    except CorruptLog as error:
        raise ConfigError(f"{error}; format the directory again") from error
    for record in records:
        if not isinstance(record, FeatureLevelRecord):
            continue
        try:
            check_feature_level(record.name, record.feature_level)
        except UnsupportedMetadata as error:
            raise ConfigError(
                f"{metadata_log_dir} was formatted by a newer release: {error}"
            ) from None


def _settings(config: NodeConfig) -> QuorumSettings:
    integer = config.integer
    listener = config.controller_listener_names[0]
    return QuorumSettings(
        election_timeout_ms=integer("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=integer("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=integer("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=integer("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=integer("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=integer("controller.quorum.fetch.snapshot.max.bytes"),
        auto_join=config.flag("controller.quorum.auto.join.enable"),
        bootstrap_servers=tuple(
            Endpoint(listener, server.host, server.port)
            for server in config.quorum_bootstrap_servers
        ),
    )


def _static_voters(config: NodeConfig, listener: str) -> VoterSet:
    return VoterSet(
        Voter(ReplicaKey(voter.node_id), (Endpoint(listener, voter.host, voter.port),))
        for voter in config.quorum_voters
    )
