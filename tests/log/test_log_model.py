"""The log against a list of records, under random operations, kills and power failures."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_builders import NOW_MS, append, decode, new_log, new_storage, reload, search

from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.protocol.records.batch import batches
from spindle.testing.filesystem import MemoryFileSystem

CONFIG = LogConfig(
    segment_bytes=400,
    segment_index_bytes=120,
    index_interval_bytes=60,
    retention_bytes=1200,
    retention_ms=-1,
)


class LogMachine(RuleBasedStateMachine):
    """Each record is (timestamp, value, epoch); the model knows where they lie in which batch."""

    files: MemoryFileSystem
    log: Log

    @initialize()
    def begin(self) -> None:
        self.files = MemoryFileSystem()
        self.log = new_log(CONFIG, new_storage(self.files))
        self.records: dict[int, tuple[int, str]] = {}
        self.batch_starts: list[int] = []
        self.epoch = 0
        self.number = 0
        self.flushed = 0
        self.lost: set[int] = set()
        """Offsets whose records a power failure has taken although later segments are there."""

    @rule(count=st.integers(1, 4), padding=st.integers(0, 90), at=st.integers(0, 500))
    def append(self, count: int, padding: int, at: int) -> None:
        first = self.log.log_end_offset
        self.batch_starts.append(first)
        values = []
        for offset in range(first, first + count):
            self.number += 1
            values.append(f"{self.number}" + "x" * padding)
            self.records[offset] = (NOW_MS + at, values[-1])
        done = append(self.log, *values, at_ms=NOW_MS + at, leader_epoch=self.epoch)
        assert done == first

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.log.log_end_offset)

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share: float) -> None:
        span = self.log.log_end_offset - self.log.high_watermark
        self.log.update_high_watermark(self.log.high_watermark + int(span * share))

    @rule(share=st.floats(0, 1))
    def advance_log_start(self, share: float) -> None:
        span = self.log.high_watermark - self.log.log_start_offset
        offset = self.log.log_start_offset + int(span * share)
        self.log.increment_log_start_offset(offset)
        self.forget(below=self.log.log_start_offset)

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments(NOW_MS)
        self.forget(below=self.log.log_start_offset)

    @precondition(lambda self: self.batch_starts)
    @rule(share=st.floats(0, 0.999))
    def truncate(self, share: float) -> None:
        self.cut(self.batch_starts[int(len(self.batch_starts) * share)])

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point
        assert self.flushed == self.log.log_end_offset

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.flushed = self.log.recovery_point
        self.load(is_clean=True)

    @rule()
    def kill(self) -> None:
        self.load(is_clean=False)

    @rule(survivors=st.integers(0, 500))
    def cut_power(self, survivors: int) -> None:
        def kept(path: str, unsynced: int) -> int:
            return min(survivors, unsynced) if path.endswith(".log") else 0

        if self.flushed == 0 or self.log.log_start_offset > self.flushed:
            return
        before = self.log.log_start_offset
        end = self.log.log_end_offset
        self.files.crash(kept)
        self.load(is_clean=False, log_start_offset=min(before, self.flushed))
        assert self.flushed <= self.log.log_end_offset <= end, "what was flushed is never lost"
        self.forget(from_offset=self.log.log_end_offset)
        for gap in self.log.unverified_gaps:
            assert gap.first_offset >= self.flushed, "what was flushed is never lost"
            self.lost.update(range(*gap))
        self.records = {at: record for at, record in self.records.items() if at not in self.lost}
        self.batch_starts = [at for at in self.batch_starts if at not in self.lost]

    def load(self, *, is_clean: bool, log_start_offset: int | None = None) -> None:
        start = self.log.log_start_offset if log_start_offset is None else log_start_offset
        high_watermark = self.log.high_watermark
        self.log = reload(
            self.files,
            CONFIG,
            is_clean=is_clean,
            recovery_point=self.flushed,
            log_start_offset=start,
        )
        self.log.update_high_watermark(high_watermark)

    def cut(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.flushed = min(self.flushed, offset)
        self.forget(from_offset=offset)

    def forget(self, below: int = 0, from_offset: int = 2**62) -> None:
        self.records = {
            offset: record
            for offset, record in self.records.items()
            if below <= offset < from_offset
        }
        self.batch_starts = [at for at in self.batch_starts if below <= at < from_offset]
        self.lost = {at for at in self.lost if at < from_offset}

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.segments.first.base_offset <= log.log_start_offset
        assert log.segments.active.base_offset <= log.log_end_offset
        starts = [start for _, start in log.epochs.entries]
        assert starts == sorted(set(starts))
        if self.records:
            assert max({*self.records, *self.lost}) == log.log_end_offset - 1

    @invariant()
    def every_record_is_there(self) -> None:
        log = self.log
        stored: dict[int, tuple[int, str]] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, 150, log.log_end_offset).records
            if not data and self.lost.issuperset(range(offset, log.log_end_offset)):
                break
            assert data, f"nothing at offset {offset} of {log!r}"
            for record in decode(data):
                if record.offset >= log.log_start_offset:
                    stored[record.offset] = (record.timestamp_ms, (record.value or b"").decode())
            offset = max(header.next_offset for _, header in batches(data))
        expected = {at: r for at, r in self.records.items() if at >= log.log_start_offset}
        assert stored == expected

    @invariant()
    def times_lead_to_the_first_record(self) -> None:
        for at in (0, 250, 500):
            matching = [o for o, (time, _) in self.records.items() if time >= NOW_MS + at]
            place = search(self.log, NOW_MS + at)
            assert (place.offset if place else None) == min(matching, default=None)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
