"""The moves that are under way, and those among them that can never end."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spindle.cli.tools.reassignment_plan import Plan, Replica
from spindle.client.admin.partitions import Reassignment
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class MovesUnderWay:
    """The moves of a cluster at one moment.

    Attributes:
        reassigned: partitions whose replicas go to other brokers.
        copies: replicas that go to another directory of their broker. A copy whose replica was in a
            directory that has failed does not count: it never ends (Kafka's brokers keep it).
        online: the replicas that a broker can read.
        offline: the log directories that have failed, by broker.
    """

    reassigned: Mapping[TopicPartition, Reassignment]
    copies: Collection[Replica]
    online: Collection[Replica]
    offline: Mapping[int, Collection[str]]

    @property
    def count(self) -> int:
        """The number of moves, whoever began them."""
        return len(self.reassigned) + len(self.copies)

    def lost(self, plan: Plan, away: Collection[int]) -> dict[TopicPartition, str]:
        """Return the partitions of a plan whose move cannot end, and why.

        Args:
            away: brokers that are not running, for so long that they are not waited for.
        """
        found = {}
        for partition, each in self.of_plan(plan).items():
            sources = set(each.replicas).difference(each.adding)
            if all(self._is_lost(Replica(broker, partition), away) for broker in sources):
                names = ", ".join(map(str, sorted(sources)))
                found[partition] = f"no broker has it to copy from: {names} had it"
            for broker in each.adding:
                replica = Replica(broker, partition)
                path = plan.directories.get(replica)
                if broker in away:
                    found[partition] = f"broker {broker} is not running"
                elif path in self.offline.get(broker, ()) and replica not in self.online:
                    found[partition] = f"directory {path} of broker {broker} has failed"
        return found

    def of_plan(self, plan: Plan) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments that a plan has begun: others may have reassigned since."""
        return {
            partition: each
            for partition, each in self.reassigned.items()
            if set(plan.replicas.get(partition, ())) == set(each.replicas).difference(each.removing)
        }

    def _is_lost(self, replica: Replica, away: Collection[int]) -> bool:
        has_failed = replica.broker in self.offline and replica not in self.online
        return replica.broker in away or has_failed


def moves_under_way(
    reassigned: Mapping[TopicPartition, Reassignment],
    described: Mapping[int, Collection[LogDirView]],
) -> MovesUnderWay:
    """Return the moves from the answers of the controller and of the brokers."""
    copies: set[Replica] = set()
    online: set[Replica] = set()
    offline: dict[int, set[str]] = {}
    for broker, views in described.items():
        for view in views:
            if view.error is not ErrorCode.NONE:
                offline.setdefault(broker, set()).add(view.path)
            for partition, each in view.replicas.items():
                (copies if each.is_future else online).add(Replica(broker, partition))
    return MovesUnderWay(reassigned, copies & online, online, offline)
