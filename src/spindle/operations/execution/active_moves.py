"""The running moves, and which of them can never complete."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spindle.client.admin.partitions import Reassignment
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.operations.reassignment import Plan, Replica


@dataclass(frozen=True, slots=True)
class ActiveMoves:
    """The moves of a cluster at one moment.

    Attributes:
        reassigned: partitions whose replicas move to other brokers.
        copies: replicas that move to another directory of their broker, and the copied bytes. A
            copy whose source directory has failed does not count: it never completes (Kafka's
            brokers keep it).
        online: the replicas that a broker can read, and their bytes.
        offline: the log directories that have failed, by broker.
    """

    reassigned: Mapping[TopicPartition, Reassignment]
    copies: Mapping[Replica, int]
    online: Mapping[Replica, int]
    offline: Mapping[int, Collection[str]]

    @property
    def count(self) -> int:
        """The number of moves, including those of other programs."""
        return len(self.reassigned) + len(self.copies)

    def lost(self, plan: Plan, away: Collection[int]) -> dict[TopicPartition, str]:
        """Return the partitions of a plan whose move cannot complete, and why.

        Args:
            away: brokers that have been down for too long to wait for them.
        """
        reasons = {}
        for partition, reassignment in self.of_plan(plan).items():
            sources = set(reassignment.replicas).difference(reassignment.adding)
            if sources and all(
                self._is_lost(Replica(broker, partition), away) for broker in sources
            ):
                names = ", ".join(map(str, sorted(sources)))
                reasons[partition] = f"no broker has it to copy from: {names} had it"
            for broker in reassignment.adding:
                replica = Replica(broker, partition)
                path = plan.directories.get(replica)
                if broker in away:
                    reasons[partition] = f"broker {broker} is not running"
                elif path in self.offline.get(broker, ()) and replica not in self.online:
                    reasons[partition] = f"directory {path} of broker {broker} has failed"
        return reasons

    def of_plan(self, plan: Plan) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments that a plan has begun: others may have reassigned since."""
        return {
            partition: reassignment
            for partition, reassignment in self.reassigned.items()
            if set(plan.replicas.get(partition, ()))
            == set(reassignment.replicas).difference(reassignment.removing)
        }

    def copied_bytes(self) -> dict[Replica, int]:
        """Return the bytes that each moving replica has; 0 if its broker does not report it."""
        adding = {
            Replica(broker, partition): self.online.get(Replica(broker, partition), 0)
            for partition, reassignment in self.reassigned.items()
            for broker in reassignment.adding
        }
        return {**adding, **self.copies}

    def names(self) -> list[str]:
        """Return the moves as texts, such as `t-0 to broker 3`."""
        names = []
        for partition, reassignment in self.reassigned.items():
            targets = ", ".join(map(str, reassignment.adding))
            names.append(f"{partition} to broker {targets}" if targets else str(partition))
        return [*names, *(f"{copy.partition} inside broker {copy.broker}" for copy in self.copies)]

    def _is_lost(self, replica: Replica, away: Collection[int]) -> bool:
        has_failed = replica.broker in self.offline and replica not in self.online
        return replica.broker in away or has_failed


def moves_under_way(
    reassigned: Mapping[TopicPartition, Reassignment],
    described: Mapping[int, Collection[LogDirView]],
) -> ActiveMoves:
    """Return the moves in the responses of the controller and of the brokers."""
    copies: dict[Replica, int] = {}
    online: dict[Replica, int] = {}
    offline: dict[int, set[str]] = {}
    for broker, views in described.items():
        for view in views:
            if view.error is not ErrorCode.NONE:
                offline.setdefault(broker, set()).add(view.path)
            for partition, on_disk in view.replicas.items():
                (copies if on_disk.is_future else online)[Replica(broker, partition)] = (
                    on_disk.size_bytes
                )
    copies = {replica: size for replica, size in copies.items() if replica in online}
    return ActiveMoves(reassigned, copies, online, offline)


class StallDetector:
    """Detects that no move makes progress.

    Args:
        limit_s: time without progress.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._seen: object = None
        self._since_s = 0.0

    def is_reached(self, now: ActiveMoves, now_s: float) -> bool:
        """Record progress; resets after a stall is reported.

        Args:
            now_s: the time of a monotonic clock.
        """
        seen = (dict(now.reassigned), now.copied_bytes())
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        if now_s - self._since_s < self._limit_s:
            return False
        self._since_s = now_s
        return True
