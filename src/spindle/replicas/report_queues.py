"""Reports of this broker that the controller has not acknowledged: in-sync replicas, directories.

Pure bookkeeping, for KIP-497 and KIP-858: one request at a time; reports that come meanwhile go
into the next, and a newer report of a partition replaces an older one. The runtime sends what
`next_request` returns and passes on the response.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from spindle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from spindle.replicas.partition import Partition
from spindle.replication.leader_state import IsrProposal

_Topic = AlterPartitionRequest.TopicData
_Partition = _Topic.PartitionData
_Directory = AssignReplicasToDirsRequest.DirectoryData

Change = tuple[Partition, IsrProposal]
MAX_CHANGES_PER_REQUEST: Final = 2_000
MAX_ASSIGNMENTS_PER_REQUEST: Final = 2_250

R = TypeVar("R")
RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class ReportQueue(Generic[R, RequestT, ResponseT]):
    """Reports by partition.

    Args:
        max_reports: of one request.
    """

    def __init__(self, broker_id: int, max_reports: int) -> None:
        self.broker_id = broker_id
        self._max_reports = max_reports
        self._ready: dict[TopicIdPartition, R] = {}
        self._in_flight: dict[TopicIdPartition, R] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._in_flight)

    def __contains__(self, key: tuple[Uuid, int]) -> bool:
        """Return True if a report of this partition is not acknowledged yet."""
        return key in self._ready or key in self._in_flight

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def put(self, key: TopicIdPartition, report: R) -> None:
        """Queue a report, also if the request in flight has the same.

        The controller may have answered that one before the partition changed in between.
        """
        self._ready[key] = report

    def next_request(self, broker_epoch: int) -> RequestT | None:
        """Return the next request; None if there is none. Drop reports that are not current."""
        assert not self._in_flight, "one request at a time"
        for key in list(self._ready):
            if len(self._in_flight) == self._max_reports:
                break
            report = self._ready.pop(key)
            if self.is_current(key, report):
                self._in_flight[key] = report
        return self.request_of(self._in_flight, broker_epoch) if self._in_flight else None

    def requeue_in_flight(self) -> None:
        """Queue again the reports without a result; a newer report of the same partition counts."""
        reports, self._in_flight = self._in_flight, {}
        self._ready = reports | self._ready

    def answered(self, response: ResponseT) -> bool:
        """Pass on the result of each report; queue again those that the response leaves out.

        Returns:
            True if every report was accepted.
        """
        is_complete = True
        for key, result in self.results(response):
            report = self._in_flight.pop(key, None)
            if report is not None:
                is_complete = self.settle(key, report, result) and is_complete
        is_complete = is_complete and not self._in_flight
        self.requeue_in_flight()
        return is_complete

    # -- for each kind of report

    def is_current(self, key: TopicIdPartition, report: R) -> bool:
        """Return False if the report is not to be sent any more."""
        raise NotImplementedError

    def request_of(self, reports: dict[TopicIdPartition, R], broker_epoch: int) -> RequestT:
        """Return the request with these reports."""
        raise NotImplementedError

    def results(self, response: ResponseT) -> Iterator[tuple[TopicIdPartition, Any]]:
        """Yield the results in a response, by partition."""
        raise NotImplementedError

    def settle(self, key: TopicIdPartition, report: R, result: Any) -> bool:
        """Take the result of a report; return True if it was accepted."""
        raise NotImplementedError


Reports: TypeAlias = ReportQueue[Any, Any, Any]
"""Reports of either kind."""


class IsrChanges(ReportQueue[Change, AlterPartitionRequest, AlterPartitionResponse]):
    """Proposed ISRs (KIP-497, KIP-903).

    Attributes:
        expands: committed proposals with more members than before.
        shrinks: committed proposals with fewer members.
        refusals: refused proposals.
    """

    def __init__(self, broker_id: int) -> None:
        super().__init__(broker_id, MAX_CHANGES_PER_REQUEST)
        self.expands = self.shrinks = self.refusals = 0

    def add(self, partition: Partition, proposal: IsrProposal) -> None:
        """Queue a proposal of the partition's leader."""
        key = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        self.put(key, (partition, proposal))

    def is_current(self, key: TopicIdPartition, report: Change) -> bool:
        leader = report[0].leader
        return leader is not None and leader.pending is report[1]

    def request_of(
        self, reports: dict[TopicIdPartition, Change], broker_epoch: int
    ) -> AlterPartitionRequest:
        """See `ReportQueue`. There are both forms of the ISR: version 2 has no broker epochs."""
        topics: dict[Uuid, _Topic] = {}
        for (topic_id, index), (_, proposal) in reports.items():
            topic = topics.setdefault(topic_id, _Topic(topic_id=topic_id))
            members = [
                _Partition.BrokerState(
                    broker_id=replica,
                    broker_epoch=broker_epoch if replica == self.broker_id else epoch,
                )
                for replica, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            ]
            topic.partitions.append(
                _Partition(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=members,
                    new_isr=list(proposal.isr),
                    leader_recovery_state=proposal.leader_recovery_state,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self.broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )

    def results(self, response: AlterPartitionResponse) -> Iterator[tuple[TopicIdPartition, Any]]:
        for topic in response.topics:
            for row in topic.partitions:
                yield TopicIdPartition(topic.topic_id, row.partition_index), row

    def settle(self, key: TopicIdPartition, report: Change, result: Any) -> bool:
        partition, proposal = report
        if result.error_code:
            self.refusals += 1
            partition.isr_refused(proposal, ErrorCode(result.error_code))
            return False
        if partition.leader is not None:
            growth = len(result.isr) - len(partition.leader.isr)
            self.expands += growth > 0
            self.shrinks += growth < 0
        partition.isr_committed(
            proposal, result.leader_epoch, result.partition_epoch, tuple(result.isr)
        )
        return True


class Assignments(ReportQueue[Uuid, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse]):
    """Directory ids of replicas (KIP-858). A refused report is sent again.

    Args:
        has_replica: returns True if this broker still has a replica of the partition.

    Attributes:
        on_acknowledged: called with (topic id, partition, directory id) of each assignment that
            the controller has accepted. It writes no record if the metadata has the directory.
    """

    def __init__(self, broker_id: int, has_replica: Callable[[Uuid, int], bool]) -> None:
        super().__init__(broker_id, MAX_ASSIGNMENTS_PER_REQUEST)
        self._has_replica = has_replica
        self.on_acknowledged: Callable[[Uuid, int, Uuid], None] = lambda *_: None

    def add(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """Queue the directory of a replica."""
        self.put(TopicIdPartition(topic_id, partition), directory_id)

    def is_current(self, key: TopicIdPartition, report: Uuid) -> bool:
        return self._has_replica(*key)

    def request_of(
        self, reports: dict[TopicIdPartition, Uuid], broker_epoch: int
    ) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, _Directory] = {}
        topics: dict[tuple[Uuid, Uuid], _Directory.TopicData] = {}
        for (topic_id, partition), directory_id in reports.items():
            directory = directories.setdefault(directory_id, _Directory(id=directory_id))
            if (directory_id, topic_id) not in topics:
                topics[directory_id, topic_id] = _Directory.TopicData(topic_id=topic_id)
                directory.topics.append(topics[directory_id, topic_id])
            topics[directory_id, topic_id].partitions.append(
                _Directory.TopicData.PartitionData(partition_index=partition)
            )
        return AssignReplicasToDirsRequest(
            broker_id=self.broker_id,
            broker_epoch=broker_epoch,
            directories=list(directories.values()),
        )

    def results(
        self, response: AssignReplicasToDirsResponse
    ) -> Iterator[tuple[TopicIdPartition, Any]]:
        for directory in response.directories:
            for topic in directory.topics:
                for row in topic.partitions:
                    yield TopicIdPartition(topic.topic_id, row.partition_index), row

    def settle(self, key: TopicIdPartition, report: Uuid, result: Any) -> bool:
        if result.error_code:
            self._ready.setdefault(key, report)
            return False
        self.on_acknowledged(*key, report)
        return True
