"""WriteTxnMarkers: markers in data partitions and in those of groups, and their errors."""

from collections.abc import Awaitable, Sequence
from typing import cast

from serving_scenario import ServingScenario

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC
from spindle.coordinator.ports import GroupCoordinatorPort
from spindle.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from spindle.serving.handlers.write_txn_markers import write_txn_markers

Marker = WriteTxnMarkersRequest.WritableTxnMarker
PRODUCER = 7
Where = tuple[str, int]


class Groups:
    """Group coordinators that end transactions as told."""

    def __init__(self) -> None:
        self.completed: list[tuple[object, ...]] = []
        self.error: ErrorCode | None = None
        self.hanging: Awaitable[None] | None = None
        """Makes partition 3 wait."""

    def complete_transaction(self, *arguments: object) -> Awaitable[None]:
        async def complete() -> None:
            if self.hanging is not None and arguments[0] == 3:
                await self.hanging
            if self.error is not None:
                raise ApiError(self.error)
            self.completed.append(arguments)

        return complete()


class MarkerScenario(ServingScenario):
    """Broker 1 with "t" on brokers 1 and 2, and coordinators that send markers."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups()
        self.services.groups = cast("GroupCoordinatorPort", self.groups)
        self.create("t", [1, 2])

    def begin(self, topic: str = "t", producer_id: int = PRODUCER) -> None:
        self.append(
            "x",
            topic=topic,
            acks=1,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    def ask(self, *markers: Marker, version: int = 2) -> str:
        return self._send(write_txn_markers, version, WriteTxnMarkersRequest(markers=list(markers)))

    def codes(self, token: str) -> dict[int, dict[Where, ErrorCode]]:
        return {
            marker.producer_id: {
                (topic.name, partition.partition_index): ErrorCode(partition.error_code)
                for topic in marker.topics
                for partition in topic.partitions
            }
            for marker in self.answer(token).markers
        }


def marker(
    *partitions: Where,
    producer_id: int = PRODUCER,
    epoch: int = 1,
    is_commit: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 2,
) -> Marker:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return Marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=is_commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            Marker.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
    )


def only(codes: dict[int, dict[Where, ErrorCode]]) -> ErrorCode:
    (partitions,) = codes.values()
    (code,) = partitions.values()
    return code


def test_no_markers_are_answered_at_once() -> None:
    s = MarkerScenario()
    assert s.codes(s.ask()) == {}


def test_a_marker_is_answered_when_the_followers_have_it() -> None:
    s = MarkerScenario()
    s.begin()
    token = s.ask(marker(("t", 0)))
    assert s.waits(token)
    s.follower_fetches(2, 2)
    assert only(s.codes(token)) == ErrorCode.NONE
    partition = s.fetch(0, read_committed=True)
    assert (partition.last_stable_offset, partition.aborted_transactions) == (2, [])


def test_a_waiting_read_committed_fetch_is_woken_by_the_commit_of_the_marker() -> None:
    s = MarkerScenario()
    s.begin()
    s.follower_fetches(2, 1)
    fetch = s.ask_fetch(0, read_committed=True)
    assert s.waits(fetch)
    s.ask(marker(("t", 0)))
    assert s.waits(fetch)
    s.follower_fetches(2, 2)
    assert s.values(fetch) == ["x"]


def test_an_abort_is_in_the_index() -> None:
    s = MarkerScenario()
    s.begin()
    s.ask(marker(("t", 0), is_commit=False))
    s.follower_fetches(2, 2)
    aborted = s.fetch(0, read_committed=True).aborted_transactions or []
    assert [(t.producer_id, t.first_offset) for t in aborted] == [(PRODUCER, 0)]


def test_each_partition_has_its_result() -> None:
    s = MarkerScenario()
    s.create("mine", [1])
    s.create("theirs", [2, 3])
    s.begin("mine")
    token = s.ask(
        marker(("mine", 0), ("mine", 9), ("theirs", 0), ("none", 0)),
        marker(("mine", 0), producer_id=8),
    )
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert s.codes(token) == {
        PRODUCER: {
            ("mine", 0): ErrorCode.NONE,
            ("mine", 9): missing,
            ("theirs", 0): missing,
            ("none", 0): missing,
        },
        8: {("mine", 0): ErrorCode.NONE},
    }


def test_a_follower_refuses_markers() -> None:
    s = MarkerScenario()
    s.change("t", leader=2)
    assert only(s.codes(s.ask(marker(("t", 0))))) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_zombie_coordinator_is_fenced() -> None:
    s = MarkerScenario()
    s.create("mine", [1])
    s.begin("mine")
    s.ask(marker(("mine", 0), epoch=1, coordinator_epoch=5))
    token = s.ask(marker(("mine", 0), epoch=2, coordinator_epoch=4))
    assert only(s.codes(token)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_an_epoch_that_was_not_bumped_is_refused_from_version_2_on() -> None:
    s = MarkerScenario()
    s.create("mine", [1])
    s.begin("mine")
    token = s.ask(marker(("mine", 0), epoch=0))
    assert only(s.codes(token)) == ErrorCode.INVALID_PRODUCER_EPOCH
    token = s.ask(marker(("mine", 0), epoch=0, transaction_version=0), version=1)
    assert only(s.codes(token)) == ErrorCode.NONE


def test_a_marker_that_is_not_replicated_in_time_is_reported_and_stays() -> None:
    s = MarkerScenario()
    s.begin()
    token = s.ask(marker(("t", 0)))
    s.pass_time(30_000)
    assert only(s.codes(token)) == ErrorCode.REQUEST_TIMED_OUT
    assert s.partition().log.log_end_offset == 2


def test_a_dead_disk_is_reported_as_an_unknown_partition() -> None:
    s = MarkerScenario()
    s.fail_disk()
    assert only(s.codes(s.ask(marker(("t", 0))))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_marker_of_a_group_goes_to_its_coordinator() -> None:
    s = MarkerScenario()
    token = s.ask(marker((OFFSETS_TOPIC, 3), coordinator_epoch=6, is_commit=False))
    assert only(s.codes(token)) == ErrorCode.NONE
    assert s.groups.completed == [(3, PRODUCER, 1, 6, False, 2)]


def test_a_group_coordinator_that_is_not_ready_is_reported_as_a_partition_without_leader() -> None:
    s = MarkerScenario()
    expected: Sequence[tuple[ErrorCode, ErrorCode]] = (
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    )
    for error, told in expected:
        s.groups.error = error
        assert only(s.codes(s.ask(marker((OFFSETS_TOPIC, 3))))) == told


def test_a_group_coordinator_that_hangs_holds_up_no_other_marker() -> None:
    s = MarkerScenario()
    s.groups.hanging = s.loop.create_future()
    token = s.ask(marker((OFFSETS_TOPIC, 3), (OFFSETS_TOPIC, 4)))
    assert [at for at, *_ in s.groups.completed] == [4]
    s.pass_time(30_000)
    assert s.codes(token) == {
        PRODUCER: {
            (OFFSETS_TOPIC, 3): ErrorCode.REQUEST_TIMED_OUT,
            (OFFSETS_TOPIC, 4): ErrorCode.NONE,
        }
    }
