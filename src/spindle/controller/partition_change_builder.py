"""The change of one partition: elections, ISR, ELR, end of a reassignment (KIP-966, KIP-455).

A caller sets the targets (`target_isr`, `target_replicas`, an election), and `build` makes the one
record that reaches them. The steps of `build` have a fixed order, because each uses the result of
the steps before it.
"""

from collections.abc import Callable, Mapping
from enum import Enum

from spindle.common.ids import NO_LEADER
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.controller.decision import ControllerSettings
from spindle.controller.topic_settings import effective_min_isr, is_unclean_election_enabled
from spindle.metadata.features import (
    DIRECTORY_ASSIGNMENT_LEVEL,
    KEEP_LEADER_EPOCH_ON_ISR_SHRINK_LEVEL,
)
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import (
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionRegistration,
)
from spindle.metadata.topics import TopicImage
from spindle.protocol.messages.metadata_records import PartitionChangeRecord


class Election(Enum):
    """The kind of election."""

    PREFERRED = "preferred"
    """The first replica, if it can lead."""
    ONLINE = "online"
    """The current leader, otherwise any replica that can lead."""
    UNCLEAN = "unclean"
    """As ONLINE, but if necessary a replica that may have lost records."""


def can_lead(
    image: MetadataImage,
    partition: PartitionRegistration,
    broker_id: int,
    *,
    is_active: Callable[[int], bool],
) -> bool:
    """Return whether the broker is alive and the directory of its replica is online."""
    if not is_active(broker_id):
        return False
    if broker_id not in partition.replicas:
        return True
    return image.cluster.has_online_directory(broker_id, partition.directory(broker_id))


class PartitionChangeBuilder:
    """A change of one partition under construction. Set the targets, then `build` once."""

    def __init__(
        self,
        image: MetadataImage,
        topic_id: Uuid,
        partition_id: int,
        partition: PartitionRegistration,
        *,
        is_active: Callable[[int], bool],
        min_isr: int,
    ) -> None:
        self._image = image
        self._partition = partition
        self._is_active = is_active
        self._min_isr = min_isr
        self._elr_enabled = image.features.is_elr_enabled
        self._record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
        self.election = Election.ONLINE
        self.target_isr = list(partition.isr)
        self.target_replicas = list(partition.replicas)
        self.target_removing = list(partition.removing_replicas)
        self.target_adding = list(partition.adding_replicas)
        self.target_elr = list(partition.elr)
        self.target_recovery_state = partition.leader_recovery_state
        self.unclean_shutdown_replicas: tuple[int, ...] = ()
        self.new_directories: Mapping[int, Uuid] = {}

    def build(self) -> PartitionChangeRecord | None:
        """Return the record, or None where nothing changes."""
        self._complete_reassignment()
        self._populate_elr()
        self._elect()
        self._bump_epoch_for_removed_replicas()
        self._record_elr()
        self._record_isr()
        self._bump_epoch_for_isr_shrink()
        self._record_last_known_leader()
        self._record_assignment()
        if self.target_recovery_state != self._partition.leader_recovery_state:
            self._record.leader_recovery_state = self.target_recovery_state
        return None if self._is_no_op() else self._record

    def can_lead(self, replica: int) -> bool:
        """Return whether the replica's broker is alive and its directory online."""
        return can_lead(self._image, self._partition, replica, is_active=self._is_active)

    def _complete_reassignment(self) -> None:
        if not self.target_removing and not self.target_adding:
            return
        isr = [replica for replica in self.target_isr if replica not in self.target_removing]
        replicas = [r for r in self.target_replicas if r not in self.target_removing]
        if not isr or not all(replica in isr for replica in self.target_adding):
            return
        # With fewer replicas than before, all remaining replicas must be in the ISR.
        if len(self.target_removing) > len(self.target_adding) and not all(
            replica in isr for replica in replicas
        ):
            return
        self.target_isr = isr
        self.target_replicas = replicas
        self.target_removing = []
        self.target_adding = []

    def _populate_elr(self) -> None:
        if not self._elr_enabled:
            # When the feature is disabled, only the replicas that were eligible have all committed
            # records.
            if not self._partition.isr and not self.target_isr:
                self.target_isr = self.target_elr
            self.target_elr = []
            return
        if len(self.target_isr) >= min(self._min_isr, len(self.target_replicas)):
            self.target_elr = []
            return
        candidates = sorted(dict.fromkeys((*self.target_elr, *self._partition.isr)))
        self.target_elr = [
            replica
            for replica in candidates
            if replica not in self.target_isr
            and replica not in self.unclean_shutdown_replicas
            and replica in self.target_replicas
        ]

    def _elect(self) -> None:
        leader, is_unclean = self._choose_leader()
        if leader == self._partition.leader:
            return
        self._record.leader = leader
        if is_unclean:
            # The logs of the others may differ from the new leader's, so the ISR starts with the
            # leader.
            self._record.isr = [leader]
            self.target_isr = [leader]
            self.target_elr = []
            if self._partition.leader_recovery_state != RECOVERING:
                self.target_recovery_state = RECOVERING
        elif leader != NO_LEADER and leader not in self.target_isr:
            self.target_isr = [leader]
            self.target_elr = [replica for replica in self.target_elr if replica != leader]

    def _choose_leader(self) -> tuple[int, bool]:
        """Return (leader or -1, whether the election is unclean)."""
        wanted = [self._partition.leader, *self.target_replicas]
        if self.election is Election.PREFERRED and self.target_replicas:
            wanted.insert(0, self.target_replicas[0])
        for replica in wanted:
            if self._is_valid_leader(replica):
                return replica, False
        if self._can_elect_last_known_leader():
            return self._partition.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.target_replicas:
                if self.can_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _is_valid_leader(self, replica: int) -> bool:
        from_elr = self._elr_enabled and not self.target_isr and replica in self.target_elr
        return (replica in self.target_isr or from_elr) and self.can_lead(replica)

    def _can_elect_last_known_leader(self) -> bool:
        if self.target_elr or self.target_isr:
            return False
        known = self._partition.last_known_elr
        return len(known) == 1 and self.can_lead(known[0])

    def _bump_epoch_for_removed_replicas(self) -> None:
        # A removed replica that still believes in this epoch could otherwise keep acknowledging.
        if self._record.leader == NO_LEADER_CHANGE and not all(
            replica in self.target_replicas for replica in self._partition.replicas
        ):
            self._record.leader = self._partition.leader

    def _record_elr(self) -> None:
        if self.target_elr != list(self._partition.elr):
            self._record.eligible_leader_replicas = self.target_elr

    def _record_isr(self) -> None:
        if self._record.isr is not None or self.target_isr == list(self._partition.isr):
            return
        # Without the ELR, only the last ISR member is known to have all records.
        if self.target_isr or self._elr_enabled:
            self._record.isr = self.target_isr

    def _bump_epoch_for_isr_shrink(self) -> None:
        if self._image.metadata_version >= KEEP_LEADER_EPOCH_ON_ISR_SHRINK_LEVEL:
            return
        isr = self._record.isr
        if self._record.leader != NO_LEADER_CHANGE or isr is None:
            return
        if not all(replica in isr for replica in self._partition.isr):
            self._record.leader = self._partition.leader

    def _record_last_known_leader(self) -> None:
        old = self._partition
        leader = self._record.leader
        if not self._elr_enabled:
            # If the ISR is empty when ELR is disabled, the last known leader can still be elected.
            if old.last_known_elr and self.target_isr:
                self._record.last_known_elr = []
            return
        is_known_gone = any(known not in self.target_replicas for known in old.last_known_elr)
        # Before the ELR was enabled, a leader that died stayed alone in the ISR.
        alone = old.isr[0] if len(old.isr) == 1 else NO_LEADER
        last_leader = alone if old.leader == NO_LEADER else old.leader
        if self._record.isr == [] and last_leader not in (NO_LEADER, *old.last_known_elr):
            # Only the first time: later there is no leader to note.
            self._record.last_known_elr = [last_leader]
        elif old.last_known_elr and (
            is_known_gone or leader >= 0 or (old.leader != NO_LEADER and leader != NO_LEADER)
        ):
            self._record.last_known_elr = []

    def _record_assignment(self) -> None:
        old = self._partition
        are_replicas_new = self.target_replicas != list(old.replicas)
        if self.target_replicas and are_replicas_new:
            self._record.replicas = self.target_replicas
        if self.target_removing != list(old.removing_replicas):
            self._record.removing_replicas = self.target_removing
        if self.target_adding != list(old.adding_replicas):
            self._record.adding_replicas = self.target_adding
        if (are_replicas_new or self.new_directories) and (
            self._image.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
        ):
            known = {
                **dict(zip(old.replicas, old.directories, strict=True)),
                **self.new_directories,
            }
            directories = [
                known.get(replica) or self._image.cluster.default_directory(replica)
                for replica in self.target_replicas
            ]
            if directories != list(old.directories):
                self._record.directories = directories

    def _is_no_op(self) -> bool:
        record = self._record
        return (
            record.leader == NO_LEADER_CHANGE
            and record.leader_recovery_state == NO_RECOVERY_CHANGE
            and all(
                field is None
                for field in (
                    record.isr,
                    record.replicas,
                    record.removing_replicas,
                    record.adding_replicas,
                    record.directories,
                    record.eligible_leader_replicas,
                    record.last_known_elr,
                )
            )
        )


__all__ = ["RECOVERED", "RECOVERING", "Election", "PartitionChangeBuilder", "can_lead"]


class PartitionChanges:
    """Creates changes that are all based on one image.

    Args:
        is_active: returns whether a broker may lead; by default as in the image.
    """

    def __init__(
        self,
        image: MetadataImage,
        settings: ControllerSettings,
        is_active: Callable[[int], bool] | None = None,
    ) -> None:
        self._image = image
        self._settings = settings
        self._is_active = is_active or image.cluster.is_active
        self._topic_id = ZERO_UUID
        self._min_isr = 0
        self._policy = Election.ONLINE

    def of(
        self, topic: TopicImage, partition_id: int, partition: PartitionRegistration
    ) -> PartitionChangeBuilder:
        """Return a change that only replaces a leader that cannot lead."""
        if topic.topic_id != self._topic_id:
            self._look_up(topic)
        return PartitionChangeBuilder(
            self._image,
            topic.topic_id,
            partition_id,
            partition,
            is_active=self._is_active,
            min_isr=self._min_isr,
        )

    def by_policy(
        self, topic: TopicImage, partition_id: int, partition: PartitionRegistration
    ) -> PartitionChangeBuilder:
        """Return a change whose election may be unclean, if the topic's configuration allows it."""
        change = self.of(topic, partition_id, partition)
        change.election = self._policy
        return change

    def _look_up(self, topic: TopicImage) -> None:
        self._topic_id = topic.topic_id
        self._min_isr = effective_min_isr(self._image, self._settings, topic)
        is_unclean = is_unclean_election_enabled(self._image, self._settings, topic.name)
        self._policy = Election.UNCLEAN if is_unclean else Election.ONLINE
