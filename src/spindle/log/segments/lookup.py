"""Finding records by their timestamps (ListOffsets).

Batch headers show which batch may have the record; only decoding finds it. Clients write both. So a
search is done in steps: `advance` runs on the directory's thread, reads a limited number of headers
and decodes small batches; `decode` unpacks any other batch and needs no file.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from spindle.common.errors import ApiError, CorruptRecords, ErrorCode, RecordsTooLarge
from spindle.log.segments.segment import ScannedBatch, Segment
from spindle.log.segments.segment_list import Segments
from spindle.protocol.records.batch import HEADER_BYTES
from spindle.protocol.records.compression import decompress
from spindle.protocol.records.record import (
    decoded_bytes_limit,
    find_by_timestamp,
    find_newest,
)

MAX_DECODED_BATCHES: Final = 8
"""Maximum number of batches that one search decodes. In a correct batch a record has the timestamp
of the header, so one batch is enough, or two if the log begins inside the first."""
MAX_SEARCHED_RECORDS: Final = 1_000_000
"""Maximum number of records in a batch that is searched; it takes half a second on another
thread."""
MAX_HEADERS_PER_STEP: Final = 2_000
SMALL_BATCH_BYTES: Final = 64 * 1024
"""A batch of at most this decompressed size is decoded on the directory's thread."""


class TimestampOffset(NamedTuple):
    """A record by timestamp and offset, with the leader epoch of its batch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class TimestampSearch:
    """A search for the first record of a time or later, or for the record with the largest time.

    Attributes:
        result: the record; None until the search is over, and if no record was found.
        is_over: True if neither `advance` nor `decode` has anything left to do.
    """

    __slots__ = (
        "_batch",
        "_decoded_count",
        "_next_offset",
        "_path",
        "_resume_at",
        "_timestamp_ms",
        "is_over",
        "result",
    )

    def __init__(self, timestamp_ms: int | None) -> None:
        """Prepare a search for a timestamp in ms; None searches for the largest timestamp."""
        self._timestamp_ms = timestamp_ms
        self._next_offset = 0
        self._decoded_count = 0
        self._batch: ScannedBatch | None = None
        self._path = ""
        self._resume_at: tuple[Segment, int, int] | None = None
        self.is_over = False
        self.result: TimestampOffset | None = None

    @property
    def must_decode(self) -> bool:
        """True if the next step is `decode`, False if it is `advance`."""
        return self._batch is not None

    def advance(self, segments: Segments, log_start_offset: int) -> None:
        """Find the next batch that may hold the record; decode it if it is small.

        Raises:
            ApiError: as `decode`.
            CorruptLog: the bytes of a segment are not batches.
        """
        if self._timestamp_ms is None:
            self._find_newest_batch(segments)
        else:
            self._next_offset = max(self._next_offset, log_start_offset)
            self._find_next_batch(segments, self._timestamp_ms)
        batch = self._batch
        if batch is not None and (
            batch.header.codec or batch.header.size_bytes <= SMALL_BATCH_BYTES
        ):
            self._decode(batch, SMALL_BATCH_BYTES)

    def decode(self) -> None:
        """Decode the batch at which `advance` stopped.

        Raises:
            ApiError: INVALID_RECORD if the records do not parse or the headers announce timestamps
                that no record has; MESSAGE_TOO_LARGE if the batch exceeds the limits of a broker.
        """
        assert self._batch is not None
        self._decode(self._batch, decoded_bytes_limit(self._batch.header.size_bytes))

    def _find_newest_batch(self, segments: Segments) -> None:
        segment = max(segments, key=lambda candidate: candidate.max_timestamp)
        newest_ms = segment.max_timestamp
        self.is_over = newest_ms < 0 or not self._scan(
            segment, segment.max_timestamp_offset, lambda timestamp_ms: timestamp_ms == newest_ms
        )

    def _find_next_batch(self, segments: Segments, timestamp_ms: int) -> None:
        for segment in segments.from_offset(self._next_offset):
            if segment.max_timestamp < timestamp_ms:
                continue
            start_offset = max(self._next_offset, segment.time_index.lookup(timestamp_ms))
            if self._scan(segment, start_offset, lambda newest_ms: newest_ms >= timestamp_ms):
                return
        self.is_over = True

    def _scan(
        self, segment: Segment, start_offset: int, may_have_record: Callable[[int], bool]
    ) -> bool:
        """Read headers from an offset on; return False if the rest of the segment has no batch.

        Stop at the batch, or when the step has read enough headers.
        """
        position = self._resume_position(segment)
        if position is None:
            position = segment.position_near(start_offset)
        for count, (at, header) in enumerate(segment.headers(position)):
            if count == MAX_HEADERS_PER_STEP:
                self._resume_at = segment, at, len(segment.cuts)
                return True
            if (
                header.record_count
                and header.last_offset >= self._next_offset
                and may_have_record(header.max_timestamp)
            ):
                self._batch = ScannedBatch(at, header, segment.read_batch(at, header))
                self._path = segment.path
                return True
        return False

    def _resume_position(self, segment: Segment) -> int | None:
        """Return where the last step stopped, unless the segment has changed since."""
        resume_at, self._resume_at = self._resume_at, None
        if resume_at is None:
            return None
        earlier, position, cut_count = resume_at
        is_same = earlier is segment and cut_count == len(segment.cuts)
        return position if is_same else None

    def _decode(self, batch: ScannedBatch, limit_bytes: int) -> None:
        header = batch.header
        try:
            if header.record_count > MAX_SEARCHED_RECORDS:
                raise RecordsTooLarge(
                    f"{header.record_count} records, at most {MAX_SEARCHED_RECORDS} are searched"
                )
            records = decompress(header.codec, batch.data[HEADER_BYTES:], limit_bytes)
            if self._timestamp_ms is None:
                match = find_newest(records, header)
            else:
                match = find_by_timestamp(records, header, self._timestamp_ms, self._next_offset)
        except RecordsTooLarge as error:
            if limit_bytes > SMALL_BATCH_BYTES:
                raise self._refusal(ErrorCode.MESSAGE_TOO_LARGE, batch, str(error)) from error
            return
        except CorruptRecords as error:
            raise self._refusal(ErrorCode.INVALID_RECORD, batch, str(error)) from error
        self._batch = None
        if match is not None:
            self.result = TimestampOffset(*match, header.leader_epoch)
            self.is_over = True
            return
        self._next_offset = header.next_offset
        self._decoded_count += 1
        if self._timestamp_ms is None:
            self.is_over = True
        elif self._decoded_count == MAX_DECODED_BATCHES:
            raise self._refusal(
                ErrorCode.INVALID_RECORD,
                batch,
                f"this batch and {MAX_DECODED_BATCHES - 1} before it announce timestamps that none "
                "of their records has",
            )

    def _refusal(self, code: ErrorCode, batch: ScannedBatch, finding: str) -> ApiError:
        return ApiError(
            code,
            f"{self._path} at byte {batch.position}, offset {batch.header.base_offset}: {finding}",
        )
