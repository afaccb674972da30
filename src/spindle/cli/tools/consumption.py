"""The records of a console consumer, from chosen partitions or those that a group assigns."""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from spindle.cli.tools.topic_filter import is_internal, topic_filter
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.group_member import BlockingGroupMember
from spindle.client.blocking.reader import ConsumedRecord, FetchOffsetOutOfRange, Reader
from spindle.client.errors import ClientError
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition

_HEARTBEAT_S: Final = 3.0
_COMMIT_S: Final = 5.0
_PAUSE_S: Final = 0.5
_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The partitions to read and the first offset; `offset`, `reset` may be EARLIEST or LATEST.

    Attributes:
        topics: names; none with a pattern.
    """

    topics: Sequence[str]
    pattern: str | None
    partition: TopicPartition | None
    offset: int | None
    reset: int


class NoNewRecords(Exception):
    """No record has arrived within the consumer's timeout."""


class Consumption:
    """Yields records one after another.

    Args:
        group_id: join this group; None reads without a group and stores no positions.
        tell: called with a sentence for each position that is not in the log.
        isolation_level: READ_COMMITTED or READ_UNCOMMITTED; None for the client's.
    """

    def __init__(
        self,
        client: WireClient,
        start: StartPosition,
        group_id: str | None,
        tell: Callable[[str], None] | None = None,
        isolation_level: int | None = None,
    ) -> None:
        if isolation_level is None:
            isolation_level = client.settings.isolation_level
        self._isolation_level = isolation_level
        self._client = client
        self._tell = tell
        self._start = start
        self._group_id = group_id
        self._member: BlockingGroupMember | None = None
        self._reader: Reader | None = None
        self._fetched: deque[ConsumedRecord] = deque()
        self._handed_out: dict[TopicPartition, int] = {}
        self._heartbeat_at = 0.0
        self._commit_at = 0.0

    def next_records(self, limit: int | None) -> list[ConsumedRecord]:
        """Return the next records, at most `limit`; none if none has arrived for a moment.

        Raises:
            ApiError: refused for good.
            ClientError: a broker could not be asked.
        """
        if self._reader is None:
            self._reader = self._open()
        if self._group_id is not None:
            self._take_part()
        if not self._fetched:
            self._fetch(self._reader)
        count = len(self._fetched) if limit is None else min(limit, len(self._fetched))
        records = [self._fetched.popleft() for _ in range(count)]
        for record in records:
            self._handed_out[record.partition] = record.offset + 1
        return records

    def batches(self, limit: int | None, timeout_ms: int | None) -> Iterator[list[ConsumedRecord]]:
        """Yield records as they arrive.

        Args:
            limit: the number of records after which to end; None for no end.
            timeout_ms: the longest time without a record; None for no limit.

        Raises:
            NoNewRecords: nothing has arrived for that time.
            ApiError: refused for good.
            ClientError: a broker could not be asked.
        """
        left = limit
        last = time.monotonic()
        while left is None or left > 0:
            records = self.next_records(left)
            if records:
                last = time.monotonic()
                left = None if left is None else left - len(records)
            yield records
            if timeout_ms is not None and (time.monotonic() - last) * _MS > timeout_ms:
                raise NoNewRecords

    def close(self) -> None:
        """Commit the positions after the returned records and leave the group, if possible."""
        if self._member is None:
            return
        # A request that Ctrl-C interrupted may still be open on a connection.
        self._client.close()
        try:
            self._commit()
            self._member.leave()
        except (ApiError, ClientError):
            # The group removes the member when its heartbeats stop.
            return

    def _fetch(self, reader: Reader) -> None:
        if not reader.positions:
            time.sleep(_PAUSE_S)
            return
        try:
            self._fetched.extend(reader.poll())
        except FetchOffsetOutOfRange as lost:
            new_positions = self._positions([lost.partition], self._start.reset)
            reader.positions |= new_positions
            if self._tell is not None:
                where = ", ".join(map(str, new_positions.values()))
                self._tell(f"{lost}; the consumer continues at offset {where}")

    def _open(self) -> Reader:
        if self._group_id is None:
            where = self._start.reset if self._start.offset is None else self._start.offset
            return self._reader_at(self._positions(self._partitions(), where))
        self._member = BlockingGroupMember(self._client, self._group_id, self._topics())
        return self._join(self._member)

    def _join(self, member: BlockingGroupMember) -> Reader:
        assigned = member.join()
        self._heartbeat_at = self._commit_at = time.monotonic()
        known = {p: offset for p, offset in assigned.items() if offset is not None}
        fresh = [p for p, offset in assigned.items() if offset is None]
        return self._reader_at(known | self._positions(fresh, self._start.reset))

    def _reader_at(self, positions: Mapping[TopicPartition, int]) -> Reader:
        return Reader(self._client, positions, isolation_level=self._isolation_level)

    def _take_part(self) -> None:
        assert self._member is not None
        now = time.monotonic()
        if now - self._commit_at >= _COMMIT_S:
            self._commit()
            self._commit_at = now
        if now - self._heartbeat_at < _HEARTBEAT_S:
            return
        self._heartbeat_at = now
        if not self._member.heartbeat():
            self._commit()
            self._fetched.clear()
            self._reader = self._join(self._member)

    def _commit(self) -> None:
        assert self._member is not None
        if self._handed_out:
            self._member.commit(self._handed_out)
            self._handed_out.clear()

    def _topics(self) -> list[str]:
        if self._start.topics:
            return list(self._start.topics)
        is_meant = topic_filter(self._start.pattern or "")
        names = self._client.metadata().topics
        return [name for name in names if is_meant(name) and not is_internal(name)]

    def _partitions(self) -> list[TopicPartition]:
        if self._start.partition is not None:
            return [self._start.partition]
        return [
            TopicPartition(name, number)
            for name in self._topics()
            for number in self._client.wait_for_topic(name).partitions
        ]

    def _positions(
        self, partitions: Iterable[TopicPartition], where: int
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if where >= 0 or not wanted:
            return dict.fromkeys(wanted, where)
        offsets = self._client.list_offsets(dict.fromkeys(wanted, where))
        return {partition: offset.offset for partition, offset in offsets.items()}


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM end the command like Ctrl-C, unless it is ignored or handled already."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        # `cli.signals` has a handler for the whole command, which keeps the exit code.
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        # Only the main thread may set handlers; the caller ends a tool in another thread.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
