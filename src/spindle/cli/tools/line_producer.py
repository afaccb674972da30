"""The lines of standard input as records, gathered into batches and sent."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import click

from spindle.cli.tools.line_reader import LineFormat
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.partitioning import partition_of_key
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.records.builder import SimpleRecord

DEFAULT_BATCH_BYTES: Final = 16 * 1024
DEFAULT_LINGER_MS: Final = 1000
_MS: Final = 1000
_READ_BYTES: Final = 64 * 1024


class InputLine(NamedTuple):
    """A record, and the number of its line."""

    number: int
    record: SimpleRecord


class Batches:
    """Gathers records by partition and sends full batches.

    A batch that is too large is split into halves, so that only a record that is too large by
    itself is refused.

    Args:
        limit_bytes: size of keys and values of a full batch; 0 sends every record alone.
        on_refused: called with the partition and the lines of a refused batch; later batches are
            still sent.

    Attributes:
        sent: number of records that the brokers have accepted.
    """

    def __init__(
        self,
        producer: BlockingProducer,
        topic: str,
        partitions: int,
        limit_bytes: int,
        on_refused: Callable[[TopicPartition, Sequence[InputLine], ApiError], None],
    ) -> None:
        self._on_refused = on_refused
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._limit_bytes = limit_bytes
        self._gathered: dict[int, list[InputLine]] = {}
        self._size_bytes: dict[int, int] = {}
        self._sticky = 0
        self.sent = 0

    def add(self, line: InputLine) -> None:
        """Add a record, and send its batch if it is full."""
        record = line.record
        partition = self._partition_of(record)
        self._gathered.setdefault(partition, []).append(line)
        size_bytes = len(record.key or b"") + len(record.value or b"")
        self._size_bytes[partition] = self._size_bytes.get(partition, 0) + size_bytes
        if self._size_bytes[partition] >= self._limit_bytes:
            self._send(partition)

    def flush(self) -> None:
        """Send all gathered records."""
        for partition in list(self._gathered):
            self._send(partition)

    def _partition_of(self, record: SimpleRecord) -> int:
        if record.key is None:
            return self._sticky
        return partition_of_key(bytes(record.key), self._partitions)

    def _send(self, partition: int) -> None:
        lines = self._gathered.pop(partition)
        self._size_bytes.pop(partition)
        if partition == self._sticky:
            # Records without a key fill one batch after another, each in the next partition.
            self._sticky = (partition + 1) % self._partitions
        self._send_lines(TopicPartition(self._topic, partition), lines)

    def _send_lines(self, where: TopicPartition, lines: Sequence[InputLine]) -> None:
        try:
            self._producer.send(where, [line.record for line in lines])
        except ApiError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE or len(lines) == 1:
                self._on_refused(where, lines, error)
                return
            middle = len(lines) // 2
            self._send_lines(where, lines[:middle])
            self._send_lines(where, lines[middle:])
        else:
            self.sent += len(lines)


def send_lines(batches: Batches, line_format: LineFormat, linger_ms: int) -> None:
    """Send the lines of standard input until its end; a failure does not drop earlier lines.

    Args:
        linger_ms: the maximum time that a line waits for others.

    Raises:
        ToolFailed: a line does not have the format.
        ClientError: a broker could not be asked.
    """
    try:
        for number, line in _lines(batches, linger_ms / _MS):
            record = line_format.record(line, number, time.time_ns() // 1_000_000)
            batches.add(InputLine(number, record))
    finally:
        batches.flush()


def _lines(batches: Batches, linger_s: float) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of standard input; send gathered records when the input pauses."""
    descriptor = sys.stdin.fileno()
    is_terminal = sys.stdin.isatty()
    buffered = b""
    number = 0
    while True:
        if is_terminal:
            click.echo(">", nl=False)
        if not select.select([descriptor], [], [], linger_s)[0]:
            batches.flush()
            select.select([descriptor], [], [])
        data = os.read(descriptor, _READ_BYTES)
        *lines, buffered = (buffered + data).split(b"\n")
        if not data and buffered:
            lines, buffered = [buffered], b""
        for line in lines:
            number += 1
            yield number, line.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not data:
            return
