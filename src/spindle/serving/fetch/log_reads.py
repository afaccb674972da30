"""The reads of a fetch in the logs of one directory, on the directory's thread."""

from collections.abc import Callable
from typing import Final, NamedTuple

from spindle.common.errors import ApiError, CorruptLog, error_code
from spindle.common.ports import Bytes
from spindle.disks.executor import DirectoryExecutor
from spindle.log.locating import locate
from spindle.log.log import Log
from spindle.log.segments.file_range import FileRange
from spindle.protocol.records.batch import HEADER_BYTES
from spindle.serving.fetch.partition_read import Found, ReadResult
from spindle.serving.fetch.sendfile_response import (
    BorrowedSocket,
    PartialResponse,
    PendingResponse,
    StreamedResponse,
)

MIN_SENT_BYTES: Final = 64 * 1024
"""Minimum size of a partition's records for sending them from their file with sendfile."""


def read_logs(
    items: list[tuple[Log, int, int, int]],
    room: int,
    has_any: bool,
    is_committed: bool,
    *,
    may_locate: bool = False,
    may_read: bool = True,
) -> list[ReadResult]:
    """Read several logs of one directory, on its thread, within `room` bytes.

    The first batch of a response is returned whole, however large (KIP-74), so that a consumer
    always makes progress. The result of a log is None if no room was left for it. `is_committed`
    asks for the aborted transactions, too (KIP-98). With `may_locate`, large records are not read,
    and the result has their range in the file. Without `may_read`, no other records are read, for
    lack of memory.
    """
    results: list[ReadResult] = []
    for log, offset, max_bytes, end_offset in items:
        if room < HEADER_BYTES and has_any:
            results.append(None)
            continue
        records: memoryview | FileRange | None = None
        size_bytes = min(max_bytes, room)
        try:
            if may_locate:
                records = locate(
                    log,
                    offset,
                    size_bytes,
                    end_offset,
                    MIN_SENT_BYTES,
                    min_one_batch=not has_any,
                )
            if records is None and not may_read:
                results.append(None)
                continue
            if records is None:
                fetched_records = log.read(
                    offset, size_bytes, end_offset, min_one_batch=not has_any
                )
                records = fetched_records.records
            aborted = (
                log.aborted_transactions(offset, end_offset) if is_committed and records else ()
            )
        except ApiError as error:
            results.append(error)
            continue
        except CorruptLog as damage:
            refused = ApiError(error_code(damage), str(damage))
            refused.__cause__ = damage
            results.append(refused)
            continue
        results.append(Found(records, aborted))
        if len(records):
            has_any = True
            room -= len(records)
    return results


class ReadAndSend(NamedTuple):
    """A read on a directory's thread, which sends the response itself if the records are large.

    Attributes:
        executor: the directory's.
        missing_bytes: minimum size for sending a response; a smaller result is returned as by
        `read_logs`.
        compose: builds the frame of the response from the results.
        may_read: False if no memory is available, so that only records sent with sendfile may be
        read.
    """

    executor: DirectoryExecutor
    loan: BorrowedSocket
    missing_bytes: int
    compose: Callable[[list[ReadResult]], list[Bytes]]
    may_read: bool

    def run(
        self,
        items: list[tuple[Log, int, int, int]],
        room: int,
        has_any: bool,
        is_committed: bool,
    ) -> list[ReadResult] | PartialResponse | PendingResponse | None:
        """Return the results of the read or the response; None if the socket was taken back."""
        may_read = self.may_read
        results = read_logs(items, room, has_any, is_committed, may_locate=True, may_read=may_read)
        found_bytes, has_range = 0, False
        for result in results:
            if isinstance(result, Found):
                found_bytes += len(result.records)
                has_range = has_range or isinstance(result.records, FileRange)
        if not has_range:
            return results
        if found_bytes >= self.missing_bytes:
            answer = StreamedResponse(self.executor, lambda: self.compose(results))
            return answer.send_on(self.loan)
        return [_in_memory(result) if may_read else None for result in results]


def _in_memory(result: ReadResult) -> ReadResult:
    if isinstance(result, Found) and isinstance(result.records, FileRange):
        return result._replace(records=result.records.read())
    return result
