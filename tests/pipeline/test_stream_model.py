"""Random histories of logs: a stream reads each offset once, or reports it as lost."""

from hypothesis import given
from hypothesis import strategies as st

from spindle.common.ids import TopicPartition
from spindle.pipeline.streaming.admission import TriggerLimits, admitted_ends
from spindle.pipeline.streaming.continuity import (
    AvailableOffsets,
    after_retention,
    continue_from,
    starts_of,
)
from spindle.pipeline.streaming.position import StreamPosition

PARTITIONS = [TopicPartition("t", n) for n in range(3)]
FIRST_ID, SECOND_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"

steps = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 30)),
    st.tuples(st.just("retain"), st.integers(0, 2), st.integers(1, 30)),
    st.tuples(st.just("create again"), st.just(0), st.just(0)),
    st.tuples(st.just("batch"), st.just(0), st.integers(1, 40)),
)


class Model:
    """A topic, and a stream with failOnDataLoss=false that follows it."""

    def __init__(self) -> None:
        self.topic_id = FIRST_ID
        self.logs: dict[TopicPartition, tuple[int, int]] = {PARTITIONS[0]: (0, 0)}
        self.position = StreamPosition({}, {})
        self.read: list[tuple[bytes, TopicPartition, int]] = []
        self.written: set[tuple[bytes, TopicPartition, int]] = set()
        self.has_lost = False

    def append(self, partition: TopicPartition, count: int) -> None:
        start, end = self.logs.get(partition, (0, 0))
        self.logs[partition] = (start, end + count)
        self.written |= {(self.topic_id, partition, n) for n in range(end, end + count)}

    def retain(self, partition: TopicPartition, count: int) -> None:
        if partition in self.logs:
            start, end = self.logs[partition]
            self.logs[partition] = (min(end, start + count), end)

    def create_again(self) -> None:
        # Ids are never used again, so this happens once.
        if self.topic_id == FIRST_ID:
            self.topic_id = SECOND_ID
            self.logs = {PARTITIONS[0]: (0, 0)}

    def batch(self, most: int) -> None:
        ends = {partition: end for partition, (_, end) in self.logs.items()}
        available = AvailableOffsets(ends, {"t": self.topic_id})
        continuation = continue_from(self.position, available, lambda _: True)
        log_starts = {
            partition: self.logs[partition][0]
            for partition, n in continuation.backlog.sizes.items()
            if n
        }
        continuation = after_retention(continuation, log_starts)
        self.has_lost = self.has_lost or bool(continuation.losses)
        end = available.with_ends_at(
            admitted_ends(continuation.backlog, TriggerLimits(max_offsets=most), 0)
        )
        starts = starts_of(self.position, end)
        for partition, stop in end.offsets.items():
            start = max(starts[partition], self.logs[partition][0])
            self.read += [(self.topic_id, partition, n) for n in range(start, stop)]
        self.position = end


@given(st.lists(steps, max_size=30))
def test_every_offset_is_read_once_or_reported(history: list[tuple[str, int, int]]) -> None:
    model = Model()
    model.batch(1)
    for what, number, count in history:
        match what:
            case "append":
                model.append(PARTITIONS[number], count)
            case "retain":
                model.retain(PARTITIONS[number], count)
            case "create again":
                model.create_again()
            case _:
                model.batch(count)
    for _ in range(40):
        model.batch(40)
    assert len(model.read) == len(set(model.read))
    missed = model.written - set(model.read)
    assert not missed or model.has_lost
    if {what for what, *_ in history} <= {"append", "batch"}:
        assert not missed
        assert not model.has_lost
