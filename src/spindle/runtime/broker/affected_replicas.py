"""The replicas of a broker that a change of its log directories affects."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.text import count_noun, join_first
from spindle.common.uuids import DIRECTORY_UNASSIGNED, Uuid
from spindle.disks.alter_disks import DirectoryInUse, ReplicaState
from spindle.disks.log_directory import LogDirectory
from spindle.disks.replica_placement import is_lost_log_needed
from spindle.log.log import Log
from spindle.metadata.image import MetadataImage
from spindle.metadata.local_changes import hosted_replicas
from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.broker.broker_metadata import BrokerMetadata

_MAX_NAMED: Final = 3


class AffectedReplicas:
    """Finds them in the newest metadata and among the replicas that the broker hosts."""

    def __init__(self, node_id: int, metadata: BrokerMetadata, replicas: ReplicaManager) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas

    def recorded_in(self, directory_id: Uuid) -> list[TopicPartition]:
        """Return the replicas of this broker that the metadata records in a directory."""
        return [
            where
            for where, partition in self._hosted()
            if partition.directory(self._node_id) == directory_id
        ]

    def is_any_unassigned(self, directory: LogDirectory, image: MetadataImage) -> bool:
        """Return True if an image does not record yet that a replica is in this directory."""
        known = [
            image.topics.partition(partition.topic_id, partition.topic_partition.partition)
            for partition in self._replicas.in_directory(directory)
        ]
        return any(
            one.directory(self._node_id) == DIRECTORY_UNASSIGNED
            for one in known
            if one is not None and self._node_id in one.replicas
        )

    def states(
        self,
        affected: Iterable[TopicPartition],
        found: Sequence[Log],
        accepted: Collection[TopicPartition] = (),
    ) -> Mapping[TopicPartition, ReplicaState]:
        """Return the states of replicas after the change, in their order.

        Args:
            found: the logs of the directory.
            accepted: replicas whose loss is accepted.
        """
        logs = {id(log): None for log in found}
        known = dict(self._hosted())
        states = {}
        for where in sorted(dict.fromkeys(affected)):
            partition = self._replicas.lookup(*where)
            if partition is not None and id(partition.log) in logs:
                states[where] = ReplicaState.FOUND
            elif partition is not None and partition.leader_id not in (
                NO_LEADER,
                self._node_id,
            ):
                states[where] = ReplicaState.CREATED
            elif partition is not None and where in accepted and len(known[where].replicas) == 1:
                states[where] = ReplicaState.CREATED_EMPTY
            elif where in known:
                states[where] = ReplicaState.OFFLINE
        return states

    def lost_with(self, failed: LogDirectory) -> list[TopicPartition]:
        """Return the known replicas of this broker in a failed directory.

        The id of a directory that had failed before the start is not known.
        """
        if failed.directory_id:
            lost = self.recorded_in(failed.directory_id)
        else:
            own = {d.directory_id for d in self._replicas.directories if d.directory_id}
            lost = [
                where
                for where, partition in self._hosted()
                if partition.directory(self._node_id) not in own
            ]
        held = [partition.topic_partition for partition in self._replicas.in_directory(failed)]
        return sorted(dict.fromkeys(lost + held))

    def check_other_copies(self, failed: LogDirectory, lost: Iterable[TopicPartition]) -> None:
        """Refuse to remove a directory that has the only replicas of partitions.

        Raises:
            DirectoryInUse: names these replicas.
        """
        known = dict(self._hosted())
        only = [where for where in lost if where in known and len(known[where].replicas) == 1]
        if only:
            raise DirectoryInUse(
                failed.path,
                dict.fromkeys(only, ReplicaState.OFFLINE),
                f"{failed.path} is offline and has the only replica of {len(only)} "
                f"partition{'' if len(only) == 1 else 's'}; bring it back online, or "
                "delete the topics",
            )

    def check_losses(
        self,
        failed: LogDirectory,
        directory_id: Uuid | None,
        found: Sequence[Log],
        accepted: Collection[TopicPartition],
    ) -> None:
        """Refuse a directory that replaces a failed one if replicas would be lost.

        Args:
            directory_id: of the directory; None if it is empty.
            found: the logs in it.
            accepted: replicas that may be lost.

        Raises:
            DirectoryInUse: names the replicas that are not accepted.
            ApiError: a replica is accepted that would not be lost.
        """
        # The log of a deleted topic of the same name does not count.
        here = {(log.topic_partition, log.topic_id) for log in found}
        candidates = self.lost_with(failed)
        if directory_id is not None:
            candidates += self.recorded_in(directory_id)
        losses = [
            where
            for where in sorted(dict.fromkeys(candidates))
            if (where, self._topic_id(where)) not in here and self._is_last(where, failed)
        ]
        lost = [where for where in losses if where not in accepted]
        wrong = [where for where in accepted if where not in losses]
        if wrong:
            names = f", but {join_first(losses, _MAX_NAMED)} would" if losses else ""
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{wrong[0]} would not be lost with {failed.path}{names}: leave out --accept-loss "
                f"{wrong[0]}",
            )
        if lost:
            what = "is empty" if directory_id is None else "does not have all logs"
            raise DirectoryInUse(
                failed.path,
                dict.fromkeys(lost, ReplicaState.OFFLINE),
                f"{failed.path} {what}, and {count_noun(len(lost), 'replica')} would be lost, "
                "because "
                "no other broker leads the partition; mount the disk that has them, or accept each "
                "loss by name (--accept-loss)",
            )

    def lost_for_good(self) -> list[TopicPartition]:
        """Return the only replicas of partitions whose directory or folder this broker lacks.

        While a directory is offline, none counts as lost: that directory may have it.
        """
        if any(d.is_offline for d in self._replicas.directories):
            return []
        return [
            where
            for where, partition in self._hosted()
            if len(partition.replicas) == 1
            and self._replicas.lookup(*where) is None
            and (topic_id := self._topic_id(where)) is not None
            and is_lost_log_needed(
                where, topic_id, partition, self._node_id, self._replicas.directories
            )
        ]

    def _is_last(self, where: TopicPartition, failed: LogDirectory) -> bool:
        """Return True if no other broker leads the partition of a replica in a failed directory."""
        known = dict(self._hosted()).get(where)
        hosted = self._replicas.lookup(*where)
        if known is None or (hosted is not None and hosted.directory is not failed):
            return False
        if known.leader not in (NO_LEADER, self._node_id):
            return False
        return not self._replicas.futures.has_whole(where, self._topic_id(where))

    def _topic_id(self, where: TopicPartition) -> Uuid | None:
        topic = self._metadata.newest.topics.by_name.get(where.topic)
        return None if topic is None else topic.topic_id

    def check_empty(self, directory: LogDirectory) -> None:
        """Refuse if replicas are in the directory, move there, or may have their only log there.

        Raises:
            DirectoryInUse: names these replicas.
        """
        replicas = self._replicas
        present = [partition.topic_partition for partition in replicas.in_directory(directory)]
        present += replicas.moves.into(directory)
        states = dict.fromkeys(sorted(dict.fromkeys(present)), ReplicaState.PRESENT)
        if states:
            raise DirectoryInUse(
                directory.path,
                states,
                f"{directory.path} has {len(states)} replica{'' if len(states) == 1 else 's'}; "
                "move them to other directories or brokers first",
            )
        waiting = replicas.futures.replicas_in(directory)
        offline = sorted({where for where in waiting if replicas.lookup(*where) is None})
        if offline:
            raise DirectoryInUse(
                directory.path,
                dict.fromkeys(offline, ReplicaState.OFFLINE),
                f"{directory.path} may have the only log of "
                f"{count_noun(len(offline), 'offline replica')}; first bring "
                "back the directory where the metadata records them",
            )

    def _hosted(self) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
        return hosted_replicas(self._metadata.newest, self._node_id)
