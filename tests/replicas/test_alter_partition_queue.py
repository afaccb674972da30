"""The queue of proposed ISRs (KIP-497)."""

from types import SimpleNamespace
from typing import Any

import pytest

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.alter_partition import AlterPartitionResponse
from spindle.replicas.report_queues import IsrChanges
from spindle.replication.leader_state import IsrProposal

TOPIC = b"t" * 16
PROPOSAL = IsrProposal((1,), (-1,), 3, 4, 0)


class Proposer:
    """A partition that notes the results of its proposal."""

    def __init__(self, index: int, mistake: Exception | None = None) -> None:
        self.topic_id = TOPIC
        self.topic_partition = TopicPartition("t", index)
        self.leader = SimpleNamespace(pending=PROPOSAL, isr=(1, 2))
        self.results: list[ErrorCode] = []
        self._mistake = mistake

    def isr_committed(self, *args: object) -> None:
        self._note(ErrorCode.NONE)

    def isr_refused(self, proposal: IsrProposal, code: ErrorCode) -> None:
        self._note(code)

    def _note(self, code: ErrorCode) -> None:
        if self._mistake is not None:
            raise self._mistake
        self.results.append(code)


def proposed(*proposers: Proposer) -> IsrChanges:
    changes = IsrChanges(1)
    for proposer in proposers:
        changes.add(_as_partition(proposer), PROPOSAL)
    assert changes.next_request(7) is not None
    return changes


def _as_partition(proposer: Proposer) -> Any:
    return proposer


def answer(**codes: int) -> AlterPartitionResponse:
    """Return an answer with the error codes of partitions, named p0, p1, ..."""
    topic = AlterPartitionResponse.TopicData
    rows = [
        topic.PartitionData(partition_index=int(name[1:]), error_code=code, isr=[1])
        for name, code in codes.items()
    ]
    return AlterPartitionResponse(topics=[topic(topic_id=TOPIC, partitions=rows)])


def test_each_partition_gets_its_result_and_what_the_answer_leaves_out_is_sent_again() -> None:
    proposers = [Proposer(index) for index in range(3)]
    changes = proposed(*proposers)
    refusal = ErrorCode.INVALID_UPDATE_VERSION
    assert not changes.answered(answer(p0=0, p1=refusal))
    assert [proposer.results for proposer in proposers] == [[ErrorCode.NONE], [refusal], []]
    assert (changes.shrinks, changes.expands, changes.refusals, len(changes)) == (1, 0, 1, 1)
    again = changes.next_request(7)
    assert again is not None
    assert [row.partition_index for row in again.topics[0].partitions] == [2]
    assert changes.answered(answer(p2=0))
    assert not changes.has_ready


def test_a_partition_that_cannot_take_its_result_costs_no_other_its_own() -> None:
    """Without a result a leader would wait for its proposal, and never make another."""
    broken, other = Proposer(0, ZeroDivisionError()), Proposer(1)
    changes = proposed(broken, other)
    with pytest.raises(ZeroDivisionError):
        changes.answered(answer(p0=0, p1=0))
    changes.requeue_in_flight()
    assert changes.next_request(7) is not None
    assert changes.answered(answer(p1=0))
    assert other.results == [ErrorCode.NONE]
