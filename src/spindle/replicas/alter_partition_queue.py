"""Proposed ISRs that the controller has not answered yet (KIP-497, KIP-903).

Pure bookkeeping: one request is in flight at a time, and later proposals wait for the next one. The
runtime sends the request that `next_request` returns and reports its result.
"""

from collections.abc import Collection, Iterable
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid
from spindle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from spindle.replicas.partition import Partition
from spindle.replication.leader_state import IsrProposal

_Topic = AlterPartitionRequest.TopicData
_Partition = _Topic.PartitionData

Key = tuple[Uuid, int]
Change = tuple[Partition, IsrProposal]
MAX_CHANGES_PER_REQUEST: Final = 2_000


class IsrChanges:
    """Proposals by partition; a newer one replaces an older one that was not sent.

    Attributes:
        expands: committed proposals with more members than before.
        shrinks: committed proposals with fewer members.
        refusals: refused proposals.
    """

    def __init__(self, broker_id: int) -> None:
        self.expands = 0
        self.shrinks = 0
        self.refusals = 0
        self._broker_id = broker_id
        self._ready: dict[Key, Change] = {}
        self._in_flight: dict[Key, Change] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._in_flight)

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def add(self, partition: Partition, proposal: IsrProposal) -> None:
        """Queue a proposal of the partition's leader."""
        self._ready[partition.topic_id, partition.topic_partition.partition] = partition, proposal

    def next_request(self, broker_epoch: int) -> AlterPartitionRequest | None:
        """Return the next request, or None. Drop proposals that their leaders have withdrawn.

        The request holds both forms of the ISR, because version 2 has no broker epochs.
        """
        assert not self._in_flight, "one request at a time"
        for key in list(self._ready):
            if len(self._in_flight) == MAX_CHANGES_PER_REQUEST:
                break
            partition, proposal = self._ready.pop(key)
            leader = partition.leader
            if leader is not None and leader.pending is proposal:
                self._in_flight[key] = partition, proposal
        if not self._in_flight:
            return None
        topics: dict[Uuid, _Topic] = {}
        for (topic_id, index), (_, proposal) in self._in_flight.items():
            if topic_id not in topics:
                topics[topic_id] = _Topic(topic_id=topic_id)
            members = [
                _Partition.BrokerState(
                    broker_id=replica,
                    broker_epoch=broker_epoch if replica == self._broker_id else epoch,
                )
                for replica, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            ]
            topics[topic_id].partitions.append(
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
            broker_id=self._broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )

    def requeue_in_flight(self) -> None:
        """Queue the proposals without a result again, unless their partition has a newer one."""
        changes, self._in_flight = self._in_flight, {}
        self._ready = changes | self._ready

    def answered(self, response: AlterPartitionResponse) -> bool:
        """Pass each partition its result; queue proposals again that the response leaves out.

        Returns:
            True if every proposal was committed.
        """
        is_complete = True
        for topic in response.topics:
            for answer in topic.partitions:
                change = self._in_flight.pop((topic.topic_id, answer.partition_index), None)
                if change is not None:
                    self._settle(*change, answer)
                    is_complete = is_complete and not answer.error_code
        is_complete = is_complete and not self._in_flight
        self.requeue_in_flight()
        return is_complete

    def _settle(
        self,
        partition: Partition,
        proposal: IsrProposal,
        answer: AlterPartitionResponse.TopicData.PartitionData,
    ) -> None:
        if answer.error_code:
            self.refusals += 1
            partition.isr_refused(proposal, ErrorCode(answer.error_code))
            return
        if partition.leader is not None:
            growth = len(answer.isr) - len(partition.leader.isr)
            self.expands += growth > 0
            self.shrinks += growth < 0
        partition.isr_committed(
            proposal, answer.leader_epoch, answer.partition_epoch, tuple(answer.isr)
        )


def distrust_followers(
    partitions: Iterable[Partition], broker_id: int, trusted: Collection[Uuid]
) -> None:
    """Require the replicas of a broker to fetch again before they may join an ISR.

    Args:
        trusted: directories that have been online all the time.
    """
    for partition in partitions:
        partition.require_new_fetch(broker_id, trusted)
