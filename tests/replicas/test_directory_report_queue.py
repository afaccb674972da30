"""The queue of directory assignments (KIP-858)."""

from typing import Any

import pytest

from spindle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from spindle.replicas.report_queues import MAX_ASSIGNMENTS_PER_REQUEST, Assignments

TOPIC, OTHER = b"t" * 16, b"o" * 16
DIR_A, DIR_B = b"a" * 16, b"b" * 16


def everything(_: bytes, __: int) -> bool:
    return True


def content(request: AssignReplicasToDirsRequest) -> dict[tuple[bytes, int], bytes]:
    return {
        (topic.topic_id, partition.partition_index): directory.id
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }


def answer(
    request: AssignReplicasToDirsRequest, errors: dict[int, int] | None = None
) -> AssignReplicasToDirsResponse:
    data = AssignReplicasToDirsResponse.DirectoryData
    return AssignReplicasToDirsResponse(
        directories=[
            data(
                id=directory.id,
                topics=[
                    data.TopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            data.TopicData.PartitionData(
                                partition_index=p.partition_index,
                                error_code=(errors or {}).get(p.partition_index, 0),
                            )
                            for p in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )


def test_the_newest_assignment_of_a_partition_wins() -> None:
    queue = Assignments(1, everything)
    queue.add(TOPIC, 0, DIR_A)
    queue.add(TOPIC, 0, DIR_B)
    queue.add(TOPIC, 1, DIR_A)
    request = queue.next_request(9)
    assert request is not None
    assert (request.broker_id, request.broker_epoch) == (1, 9)
    assert content(request) == {(TOPIC, 0): DIR_B, (TOPIC, 1): DIR_A}
    assert queue.answered(answer(request))
    assert len(queue) == 0


def test_an_assignment_is_queued_until_the_last_one_of_its_replica_is_acknowledged() -> None:
    queue = Assignments(1, everything)
    queue.add(TOPIC, 0, DIR_A)
    request = queue.next_request(9)
    assert request is not None
    queue.add(TOPIC, 0, DIR_B)
    assert queue.answered(answer(request))
    assert (TOPIC, 0) in queue
    request = queue.next_request(9)
    assert request is not None
    assert (TOPIC, 0) in queue
    assert queue.answered(answer(request))
    assert (TOPIC, 0) not in queue


def test_refused_and_unanswered_ones_are_sent_again() -> None:
    queue = Assignments(1, everything)
    for partition in range(3):
        queue.add(TOPIC, partition, DIR_A)
    request = queue.next_request(1)
    assert request is not None
    response = answer(request, errors={1: 3})
    response.directories[0].topics[0].partitions.pop(2)
    assert not queue.answered(response)
    again = queue.next_request(1)
    assert again is not None
    assert set(content(again)) == {(TOPIC, 1), (TOPIC, 2)}


def test_a_failed_request_does_not_overwrite_what_came_meanwhile() -> None:
    queue = Assignments(1, everything)
    queue.add(TOPIC, 0, DIR_A)
    assert queue.next_request(1) is not None
    queue.add(TOPIC, 0, DIR_B)
    queue.requeue_in_flight()
    again = queue.next_request(1)
    assert again is not None
    assert content(again) == {(TOPIC, 0): DIR_B}


def test_stale_entries_are_dropped_just_before_sending() -> None:
    queue = Assignments(1, lambda topic_id, _: topic_id == TOPIC)
    queue.add(OTHER, 0, DIR_A)
    assert queue.next_request(1) is None
    assert len(queue) == 0


def test_a_request_has_its_limit() -> None:
    queue = Assignments(1, everything)
    for partition in range(MAX_ASSIGNMENTS_PER_REQUEST + 1):
        queue.add(TOPIC, partition, DIR_A)
    request = queue.next_request(1)
    assert request is not None
    assert len(content(request)) == MAX_ASSIGNMENTS_PER_REQUEST
    assert queue.has_ready


def test_reports_missing_in_a_response_are_sent_again() -> None:
    """An answer that cannot be read to its end acknowledges only what was read."""
    queue = Assignments(1, everything)
    for partition in range(2):
        queue.add(TOPIC, partition, DIR_A)
    request = queue.next_request(1)
    assert request is not None
    response = answer(request)
    partitions: list[Any] = response.directories[0].topics[0].partitions
    partitions[1] = None
    with pytest.raises(AttributeError):
        queue.answered(response)
    queue.requeue_in_flight()
    again = queue.next_request(1)
    assert again is not None
    assert content(again) == {(TOPIC, 1): DIR_A}


def test_a_replica_that_goes_back_while_its_assignment_is_sent_is_assigned_again() -> None:
    """The revert of a move that fails comes behind the assignment that is under way."""
    queue = Assignments(1, everything)
    queue.add(TOPIC, 0, DIR_A)
    forward = queue.next_request(1)
    assert forward is not None
    queue.add(TOPIC, 0, DIR_B)
    assert queue.answered(answer(forward))
    revert = queue.next_request(1)
    assert revert is not None
    assert content(revert) == {(TOPIC, 0): DIR_B}


def test_a_repeated_assignment_is_sent_again_after_the_one_under_way() -> None:
    queue = Assignments(1, everything)
    queue.add(TOPIC, 0, DIR_A)
    first = queue.next_request(1)
    assert first is not None
    queue.add(TOPIC, 0, DIR_A)
    queue.answered(answer(first))
    again = queue.next_request(1)
    assert again is not None
    assert content(again) == {(TOPIC, 0): DIR_A}


def test_accepted_assignments_are_reported_and_refused_ones_are_not() -> None:
    queue = Assignments(1, everything)
    acknowledged: list[tuple[bytes, int, bytes]] = []
    queue.on_acknowledged = lambda *assignment: acknowledged.append(assignment)
    queue.add(TOPIC, 0, DIR_A)
    queue.add(TOPIC, 1, DIR_B)
    request = queue.next_request(9)
    assert request is not None
    assert not queue.answered(answer(request, {0: 1}))
    assert acknowledged == [(TOPIC, 1, DIR_B)]
