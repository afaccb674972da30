"""Walk over the segments of a replica while a broker rolls, merges, deletes or moves them.

The directory is listed again at every segment. A segment that is open stays readable after its file
was removed, so only the step to the next one can fail. Compaction may have merged the open segment
with its neighbours meanwhile; its path then leads to another file, and the walk is interrupted, to
begin again at the offset that it has reached.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from spindle.columnar.directory_files import read_leader_epochs
from spindle.columnar.segment_files import SegmentFile
from spindle.columnar.segment_log import Position, SegmentLog
from spindle.common.errors import CorruptLog
from spindle.log.formats.index_entries import MAX_RELATIVE_OFFSET
from spindle.pipeline.errors import DataLoss, LogChanged
from spindle.pipeline.segments.ranges import SegmentRange


class WalkInterrupted(Exception):
    """A walk cannot continue; offsets below `next_offset` were read.

    `failure` is None if segments were replaced or their directory moved; otherwise the directory
    cannot be read here: no right, or an I/O error.
    """

    def __init__(self, next_offset: int, failure: OSError | None = None) -> None:
        super().__init__(f"the walk over the segments was interrupted at offset {next_offset}")
        self.next_offset = next_offset
        self.failure = failure


class OpenSegment(NamedTuple):
    """An open `.log` file, the byte from which it is to be read, and the offset it may reach."""

    file: Any
    segment: SegmentFile
    position: int
    max_offset: int


class SegmentWalk:
    """Opens the segments of a range one after another.

    The reader of the bytes keeps three attributes up to date: `next_offset` (the offset after the
    last batch it has read), `is_finished` (the end of the range was reached) and `left_bytes`
    (bytes at the end of the current segment that are not a whole batch). A reader that skips
    corrupt batches sets `passes_torn_ends`, and `has_damage` when it has skipped one.
    """

    def __init__(self, piece: SegmentRange, log: SegmentLog, *, fail_on_data_loss: bool) -> None:
        self._piece = piece
        self._log = log
        self._fail_on_data_loss = fail_on_data_loss
        self.next_offset = piece.start_offset
        self.is_finished = piece.start_offset >= piece.end_offset
        self.left_bytes = 0
        self.passes_torn_ends = False
        self.has_damage = False

    def __iter__(self) -> Iterator[OpenSegment]:
        """Yield the segments until the reader has finished.

        Raises:
            WalkInterrupted: the directory has vanished, or segments were replaced.
            DataLoss: part of the range is no longer there, and that is an error.
            LogChanged: the log was truncated while it was read.
            CorruptLog: a segment that is not the last one ends inside a batch.
        """
        try:
            yield from self._segments()
        except OSError as error:
            raise self.interrupted(error) from error
        if not self.is_finished and not self.has_damage:
            self._lost(f"the log ends at {self.next_offset}")
        self.check_epochs()

    def check_epochs(self) -> None:
        """Raise LogChanged if a new leader truncated planned offsets.

        The epoch history below the end then differs from the planned one.
        """
        end = self._piece.end_offset
        now = [entry for entry in read_leader_epochs(self._log.path) if entry[1] < end]
        planned = [entry for entry in self._piece.leader_epochs if entry[1] < end]
        # Retention removes old epochs from the front, so the newest ones are compared.
        if now and planned and now[-1] != planned[-1]:
            raise LogChanged(
                f"{self._piece.partition}: the leader epochs below offset {end} changed from "
                f"{planned} to {now} while it was read"
            )

    def _segments(self) -> Iterator[OpenSegment]:
        start = self._start()
        segment: SegmentFile | None = start.segment
        position = start.position
        while segment is not None:
            with open(segment.path, "rb", buffering=0) as file:
                self.left_bytes = 0
                yield OpenSegment(file, segment, position, self._max_offset(segment))
                following = None if self.is_finished else self._following(segment, file)
                if following is not None and self.left_bytes and not self.passes_torn_ends:
                    raise CorruptLog(
                        str(segment.path),
                        os.fstat(file.fileno()).st_size - self.left_bytes,
                        f"{self.left_bytes} bytes before the next segment are not a whole batch",
                    )
            segment, position = following, 0

    def _max_offset(self, segment: SegmentFile) -> int:
        """Return the greatest offset of which a segment can have a record."""
        following = self._log.segment_after(segment)
        max_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        return max_offset if following is None else min(max_offset, following.base_offset - 1)

    def _start(self) -> Position:
        """Return the planned position if the segment still has it, else search for the offset."""
        piece = self._piece
        for segment in self._log.segments:
            if segment.base_offset == piece.segment_base_offset:
                near = self._log.boundary_near(segment, piece.position)
                if near.position <= piece.position and near.offset <= piece.start_offset:
                    return near
        if self._log.first_offset > piece.start_offset:
            self._log = _listed_twice(self._log)
            if self._log.first_offset > piece.start_offset:
                self._lost(f"the log begins at {self._log.first_offset}")
        near_start = self._log.position_of(piece.start_offset)
        if near_start is None:
            raise DataLoss(f"{piece.partition}: {self._log.path} has no segments")
        return near_start

    def _following(self, current: SegmentFile, file: Any) -> SegmentFile | None:
        """Return the segment after the open one, None at the end of the log."""
        self._log = SegmentLog(self._log.path)
        if not os.path.samestat(os.stat(current.path), os.fstat(file.fileno())):
            raise self.interrupted()
        following = self._log.segment_after(current)
        if following is not None and following.base_offset > self.next_offset:
            # Compaction leaves such gaps. But a listing can also miss a file that is renamed.
            self._log = _listed_twice(self._log)
            following = self._log.segment_after(current)
        return following

    def interrupted(self, error: OSError | None = None) -> WalkInterrupted:
        """Return the end of this walk at the offset reached, by an error of the file system."""
        failure = None if isinstance(error, FileNotFoundError) else error
        return WalkInterrupted(max(self.next_offset, self._piece.start_offset), failure)

    def _lost(self, finding: str) -> None:
        if self._fail_on_data_loss:
            raise DataLoss(
                f"{self._piece.partition}: planned offsets [{self._piece.start_offset}, "
                f"{self._piece.end_offset}), but {finding}"
            )


def _listed_twice(log: SegmentLog) -> SegmentLog:
    """Return the log by a listing that the next one confirms."""
    while True:
        again = SegmentLog(log.path)
        if again.names == log.names:
            return again
        log = again
