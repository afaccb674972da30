"""Gather rows into record batches, one open batch for each partition, within bounded memory."""

import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spindle.client.blocking.batch_sender import GatheredRecords
from spindle.columnar import encoder_kernel as kernel
from spindle.common.ids import TopicPartition
from spindle.pipeline.sink.errors import SinkError
from spindle.pipeline.sink.rows import RowBuffers
from spindle.pipeline.sink.state import RowsDigest
from spindle.protocol.records.batch import HEADER_BYTES

_MS: Final = 1000
_SLOTS_AT_FIRST: Final = 64


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Sizes in bytes: of a batch, of all open batches together, and of the largest record."""

    batch_bytes: int
    buffer_bytes: int
    record_bytes: int


class RowDigester:
    """Sums up the rows of a task, whatever their order (see `RowsDigest`)."""

    def __init__(self) -> None:
        self._sums = np.zeros(2, np.uint64)
        self._rows = 0
        self._hashes: dict[str, int] = {}

    @property
    def digest(self) -> RowsDigest:
        """The digest of the rows so far."""
        return RowsDigest(self._rows, (int(self._sums[0]), int(self._sums[1])))

    def add(self, rows: RowBuffers) -> None:
        """Add the rows of an Arrow batch."""
        for name in rows.topic_names:
            if name not in self._hashes:
                hashed = hashlib.blake2b(name.encode(), digest_size=8).digest()
                self._hashes[name] = int.from_bytes(hashed)
        topics = np.array([self._hashes[name] for name in rows.topic_names], np.uint64)
        kernel.digest_rows(
            rows.keys, rows.values, rows.headers, rows.topics, topics, rows.given, rows.rows,
            self._sums,
        )  # fmt: skip
        self._rows += rows.rows


class BatchGatherer:
    """Encodes rows and hands over each batch when it is full.

    Args:
        partitions: Number of partitions of a topic by its name.
        hand_over: Takes a full batch.
        clock: The time of records, in seconds since the epoch.
    """

    def __init__(
        self,
        limits: BatchLimits,
        partitions: Callable[[str], int],
        hand_over: Callable[[GatheredRecords], None],
        *,
        clock: Callable[[], float] = time.time,
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        self._limits = limits
        self._partitions = partitions
        self._hand_over = hand_over
        self._clock = clock
        self._choose = choose
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self._sticky_bytes: dict[str, int] = {}
        self._slot_of: dict[TopicPartition, int] = {}
        self._places: list[TopicPartition] = []
        self._table = np.zeros((_SLOTS_AT_FIRST, kernel.SLOT_WIDTH), np.int64)
        self._buffers: dict[int, Any] = {}
        self._times_ms: dict[int, int] = {}
        self._held_bytes = 0

    def add(self, rows: RowBuffers) -> None:
        """Encode the rows of an Arrow batch.

        Raises:
            SinkError: a partition does not exist, or a record is too large.
        """
        slots = self._slots(rows)
        result = np.zeros(kernel.RESULT_WIDTH, np.int64)
        row = 0
        while True:
            kernel.encode_rows(
                rows.keys, rows.values, rows.headers, slots, row, self._table, result
            )
            row = int(result[kernel.NEXT_ROW])
            if row == rows.rows:
                return
            self._make_room(int(slots[row]), int(result[kernel.NEEDED_BYTES]))

    def flush(self) -> None:
        """Hand over all open batches and free their memory."""
        for slot in list(self._buffers):
            self._seal(slot)
            self._release(slot)

    def _slots(self, rows: RowBuffers) -> Any:
        """Return the slot of each row."""
        for name in rows.topic_names:
            if name not in self._counts:
                self._counts[name] = self._partitions(name)
            self._choose_sticky(name, rows)
        counts = np.array([self._counts[name] for name in rows.topic_names], np.int64)
        sticky = np.array([self._sticky[name] for name in rows.topic_names], np.int64)
        chosen = np.empty(rows.rows, np.int64)
        wrong = kernel.partition_by_key(rows.keys, rows.topics, counts, sticky, rows.given, chosen)
        if wrong >= 0:
            name = rows.topic_names[rows.topics[wrong]]
            given = max(int(rows.given[wrong]), -1)
            shown = "a negative number" if given < 0 else given
            raise SinkError(
                f"column partition has {shown}, and topic {name!r} has the partitions 0 to "
                f"{self._counts[name] - 1}"
            )
        width = int(counts.max())
        codes = rows.topics.astype(np.int64) * width + chosen
        distinct, inverse = np.unique(codes, return_inverse=True)
        numbers = [
            self._slot(TopicPartition(rows.topic_names[code // width], int(code % width)))
            for code in distinct.tolist()
        ]
        return np.array(numbers, np.int64)[inverse]

    def _choose_sticky(self, name: str, rows: RowBuffers) -> None:
        """Keep the partition of rows without a key until about one batch went there."""
        if name not in self._sticky or self._sticky_bytes[name] >= self._limits.batch_bytes:
            self._sticky[name] = self._choose(self._counts[name])
            self._sticky_bytes[name] = 0
        self._sticky_bytes[name] += rows.value_bytes

    def _slot(self, place: TopicPartition) -> int:
        slot = self._slot_of.get(place)
        if slot is None:
            slot = self._slot_of[place] = len(self._places)
            self._places.append(place)
            if slot == len(self._table):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        return slot

    def _make_room(self, slot: int, needed_bytes: int) -> None:
        """Give a slot an empty buffer with room for a record."""
        if needed_bytes > self._limits.record_bytes - HEADER_BYTES:
            raise SinkError(
                f"a record for {self._places[slot]} has {needed_bytes + HEADER_BYTES} bytes with "
                f"its batch header, above kafka.max.request.size ({self._limits.record_bytes})"
            )
        self._seal(slot)
        wanted = max(self._limits.batch_bytes, needed_bytes + HEADER_BYTES)
        if slot in self._buffers and self._table[slot, kernel.SLOT_CAPACITY] >= wanted:
            return
        self._release(slot)
        if self._held_bytes and self._held_bytes + wanted > self._limits.buffer_bytes:
            self.flush()
        buffer = pa.allocate_buffer(wanted)
        self._buffers[slot] = buffer
        self._held_bytes += wanted
        self._table[slot] = (buffer.address, HEADER_BYTES, wanted, 0)
        self._times_ms[slot] = int(self._clock() * _MS)

    def _seal(self, slot: int) -> None:
        line = self._table[slot]
        records = int(line[kernel.SLOT_RECORDS])
        if records:
            used = int(line[kernel.SLOT_USED])
            data = memoryview(self._buffers[slot])[HEADER_BYTES:used]
            self._hand_over(
                GatheredRecords(self._places[slot], data, records, self._times_ms[slot])
            )
            line[kernel.SLOT_USED] = HEADER_BYTES
            line[kernel.SLOT_RECORDS] = 0
            self._times_ms[slot] = int(self._clock() * _MS)

    def _release(self, slot: int) -> None:
        if self._buffers.pop(slot, None) is not None:
            self._held_bytes -= int(self._table[slot, kernel.SLOT_CAPACITY])
            self._table[slot] = 0
