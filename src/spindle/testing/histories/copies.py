"""Rules about applications that consume, transform and produce: exactly one copy of each record."""

from collections.abc import Mapping
from typing import NamedTuple

from spindle.common.ids import TopicPartition
from spindle.testing.histories.client_history import ClientHistory, Copy, PartitionLogs
from spindle.testing.histories.events import NumberedRecord
from spindle.testing.histories.findings import FaultKind, HistoryFault


class _Source(NamedTuple):
    partition: TopicPartition
    offset: int
    record: NumberedRecord

    def __str__(self) -> str:
        return f"{self.record} at offset {self.offset} of {self.partition}"


class CopyCheck:
    """The check of one application.

    Attributes:
        copied: how many records have a copy.
    """

    def __init__(
        self,
        history: ClientHistory,
        copy: Copy,
        last_read: Mapping[tuple[str, TopicPartition], int],
        floors: Mapping[tuple[str, TopicPartition], int],
    ) -> None:
        """Check it by the committed offsets: `last_read` is exact, `floors` are the least."""
        self.faults: list[HistoryFault] = []
        self._copy = copy
        self._last_read = last_read
        self._floors = floors
        self._expected = self._sources(history.logs)
        self._found: dict[NumberedRecord, str] = {}
        for partition, log in sorted(history.logs.items()):
            if partition.topic == copy.target:
                self._compare(partition, log)
        self.copied = len(self._found)
        for record, source in self._expected.items():
            self._compare_with_offset(record, source)

    def _sources(self, logs: PartitionLogs) -> dict[NumberedRecord, _Source]:
        expected: dict[NumberedRecord, _Source] = {}
        for partition, log in sorted(logs.items()):
            if partition.topic != self._copy.source:
                continue
            for offset, record in sorted(log.items()):
                copied = self._copy.transform(record)
                if copied is not None:
                    expected.setdefault(copied, _Source(partition, offset, record))
        return expected

    def _compare(self, partition: TopicPartition, log: dict[int, NumberedRecord]) -> None:
        newest: dict[TopicPartition, int] = {}
        for offset, record in sorted(log.items()):
            what = f"{record} at offset {offset} of {partition}"
            source = self._expected.get(record)
            if source is None:
                self._add(
                    FaultKind.COPY_WITHOUT_SOURCE, f"{what} has no source in {self._copy.source}"
                )
                continue
            if record in self._found:
                self._add(FaultKind.COPIED_TWICE, f"{source}: {self._found[record]}, and {what}")
                continue
            self._found[record] = what
            before = newest.get(source.partition, -1)
            if source.offset < before:
                self._add(
                    FaultKind.COPY_OUT_OF_ORDER,
                    f"{what} is the copy of offset {source.offset} of {source.partition}, behind "
                    f"that of offset {before}",
                )
            newest[source.partition] = max(before, source.offset)

    def _compare_with_offset(self, record: NumberedRecord, source: _Source) -> None:
        where = (self._copy.group, source.partition)
        least = self._floors.get(where, 0)
        most = self._last_read.get(where)
        is_copied = record in self._found
        if not is_copied and source.offset < least:
            self._add(
                FaultKind.NOT_COPIED, f"{source} has no copy, and offset {least} is committed"
            )
        elif not is_copied and self._copy.is_finished:
            self._add(FaultKind.NOT_COPIED, f"{source} has no copy")
        elif is_copied and most is not None and source.offset >= max(most, least):
            self._add(
                FaultKind.COPIED_BEFORE_COMMIT,
                f"{source} has a copy, {self._found[record]}, but {max(most, 0)} is committed",
            )

    def _add(self, kind: FaultKind, text: str) -> None:
        self.faults.append(HistoryFault(kind, text))
