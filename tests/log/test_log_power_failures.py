"""Power fails after any work on a log: what the recovery point promises is there, and no more."""

import copy
from dataclasses import replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from log_builders import NOW_MS, SMALL, TOPIC_ID, append, new_log, new_storage, read_all, reload

from spindle.log.flushing import FlushTask
from spindle.log.log import Log
from spindle.testing.filesystem import MemoryFileSystem

CONFIG = replace(SMALL, retention_bytes=3_000, cleanup_policy=("delete",), file_delete_delay_ms=0)
WORK = (
    "append",
    "append",
    "roll",
    "begin flush",
    "run flush",
    "complete flush",
    "truncate",
    "start over",
    "delete records",
    "retain",
    "elect",
)


class Worker:
    """Works on a log as its directory's thread does, and as the thread for flushes beside it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.epoch = 0
        self.flush: FlushTask | None = None
        self.has_run = False

    def do(self, work: str, number: int) -> None:
        log = self.log
        start, size = log.log_start_offset, log.log_end_offset - log.log_start_offset + 1
        log.update_high_watermark(log.log_end_offset)
        if work == "append":
            append(log, *["x" * (number % 200)] * (1 + number % 4), leader_epoch=self.epoch)
        elif work == "roll":
            log.roll(NOW_MS)
        elif work == "truncate":
            log.truncate_to(start + number % size)
        elif work == "start over":
            log.truncate_fully_and_start_at(number)
        elif work == "delete records":
            log.increment_log_start_offset(start + number % size)
        elif work == "retain":
            log.delete_old_segments(NOW_MS)
        elif work == "elect":
            self.epoch += 1
            log.assign_epoch_start(self.epoch, log.log_end_offset)
        else:
            self.do_flush(work)

    def do_flush(self, work: str) -> None:
        """One flush at a time: begun, run and completed, with other work in between."""
        if work == "begin flush" and self.flush is None:
            self.flush, self.has_run = self.log.begin_flush(), False
        elif work == "run flush" and self.flush is not None:
            self.flush.run()
            self.has_run = True
        elif work == "complete flush" and self.flush is not None and self.has_run:
            self.log.complete_flush(self.flush)
            self.flush = None


# Without shrinking: each example copies a file system for each of its steps.
@settings(deadline=None, max_examples=120, phases=[Phase.generate])
@given(
    st.lists(st.tuples(st.sampled_from(WORK), st.integers(0, 400)), min_size=20, max_size=30),
    st.sampled_from([0.0, 0.4, 0.9, 1.0]),
)
def test_what_the_recovery_point_promises_survives(
    works: list[tuple[str, int]], kept: float
) -> None:
    files = MemoryFileSystem()
    worker = Worker(new_log(CONFIG, new_storage(files)))
    log = worker.log
    worker.do("append", 1)
    for work, number in works:
        worker.do(work, number)
        expected = {record.offset: record.value for record in read_all(log)}
        after = copy.deepcopy(files)
        after.crash(lambda _, unsynced_bytes: int(unsynced_bytes * kept))
        loaded = reload(
            after,
            CONFIG,
            is_clean=False,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
        )
        found = {record.offset: record.value for record in read_all(loaded)}
        assert found.items() <= expected.items()
        assert [at for at in expected if at < log.recovery_point and at not in found] == []
        assert all(log.epochs.epoch_at(at) == loaded.epochs.epoch_at(at) for at in found)
        assert loaded.topic_id == TOPIC_ID
