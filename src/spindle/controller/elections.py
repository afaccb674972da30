"""ElectLeaders (KIP-183, KIP-460), and the elections that the controller starts itself."""

from collections.abc import Callable, Iterable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import NO_LEADER
from spindle.controller.broker_changes import partitions_where
from spindle.controller.decision import ControllerSettings, Decision, OperationContext
from spindle.controller.partition_change_builder import Election, PartitionChanges
from spindle.controller.topic_settings import is_unclean_election_enabled
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from spindle.protocol.messages.metadata_records import PartitionChangeRecord

MAX_ELECTIONS_PER_PASS: Final = 1000
_KINDS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}

_TopicResult = ElectLeadersResponse.ReplicaElectionResult
_Result = _TopicResult.PartitionResult


def elect_leaders(
    given: OperationContext, request: ElectLeadersRequest
) -> Decision[ElectLeadersResponse]:
    """Elect preferred leaders, or unclean ones for partitions without a leader.

    A request without a list means all partitions; the response then omits those that need no
    election.

    Raises:
        ApiError: INVALID_REQUEST for an unknown kind of election.
    """
    image = given.image
    if request.topic_partitions == []:
        return Decision(ElectLeadersResponse(), [])
    kind = _KINDS.get(request.election_type)
    if kind is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    is_everything = request.topic_partitions is None
    if request.topic_partitions is None:
        asked = [
            (t.name, list(t.partitions) if t.counts.leaderless or t.counts.not_preferred else [])
            for t in image.topics.by_id.values()
        ]
    else:
        asked = [(entry.topic, list(entry.partitions)) for entry in request.topic_partitions]
    changes = PartitionChanges(image, given.context.settings)
    records: list[Message] = []
    answers: list[_TopicResult] = []
    for name, partition_ids in asked:
        results: list[_Result] = []
        for partition_id in partition_ids:
            code, text = ErrorCode.NONE, None
            try:
                records.append(_elect(image, changes, name, partition_id, kind))
            except ApiError as error:
                code, text = error.code, error.message
            if not (is_everything and code is ErrorCode.ELECTION_NOT_NEEDED):
                results.append(
                    _Result(partition_id=partition_id, error_code=code, error_message=text)
                )
        answers.append(_TopicResult(topic=name, partition_result=results))
    return Decision(ElectLeadersResponse(replica_election_results=answers), records)


def _elect(
    image: MetadataImage, changes: PartitionChanges, name: str, partition_id: int, kind: Election
) -> PartitionChangeRecord:
    topic = image.topics.by_name.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(partition_id)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition_id}"
        )
    if kind is Election.PREFERRED:
        is_needed = partition.leader != partition.preferred_leader
    else:
        is_needed = partition.leader == NO_LEADER
    if not is_needed:
        raise ApiError(
            ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    change = changes.of(topic, partition_id, partition)
    change.election = kind
    record = change.build()
    if record is not None:
        return record
    if kind is Election.PREFERRED:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
        )
    raise ApiError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    )


def balance_leaders(image: MetadataImage, settings: ControllerSettings) -> Decision[bool]:
    """Elect the preferred leaders that can lead; respond True if more partitions remain."""
    return _elect_many(
        image,
        settings,
        Election.PREFERRED,
        image.topics.with_not_preferred(),
        lambda topic, p: p.leader not in (NO_LEADER, p.preferred_leader),
    )


def elect_waiting(image: MetadataImage, settings: ControllerSettings) -> Decision[bool]:
    """Elect leaders for partitions without one; respond True if more partitions remain."""
    if not any(broker.is_active for broker in image.cluster.brokers.values()):
        return Decision(False, [])  # elections run when the first broker is unfenced
    return _elect_many(
        image, settings, None, image.topics.with_leaderless(), lambda _, p: p.leader == NO_LEADER
    )


def elect_uncleanly(image: MetadataImage, settings: ControllerSettings) -> Decision[bool]:
    """Elect unclean leaders where it is allowed; respond True if more partitions remain."""
    return _elect_many(
        image,
        settings,
        Election.UNCLEAN,
        image.topics.with_leaderless(),
        lambda topic, p: (
            p.leader == NO_LEADER and is_unclean_election_enabled(image, settings, topic.name)
        ),
    )


def _elect_many(
    image: MetadataImage,
    settings: ControllerSettings,
    kind: Election | None,
    topics: Iterable[TopicImage],
    is_wanted: Callable[[TopicImage, PartitionRegistration], bool],
) -> Decision[bool]:
    changes = PartitionChanges(image, settings)
    records: list[Message] = []
    for topic, partition_id, partition in partitions_where(topics, lambda _: True):
        if not is_wanted(topic, partition):
            continue
        change = changes.by_policy(topic, partition_id, partition)
        if kind is not None:
            change.election = kind
        record = change.build()
        if record is not None:
            if len(records) == MAX_ELECTIONS_PER_PASS:
                return Decision(True, records)
            records.append(record)
    return Decision(False, records)
