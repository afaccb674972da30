"""Committed offsets of one shard, and the pending offsets of open transactions.

Changes come only from committed records and markers. A transactional offset is pending until the
marker of its producer. An abort drops it. A commit makes it visible, unless the partition already
has an offset from a later record (compaction may have removed the records between them).
"""

from collections.abc import Iterator

from spindle.common.ids import TopicPartition
from spindle.coordinator.records import CommittedOffset

GroupOffsets = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    """Offsets by group and partition, in the order of their first commit."""

    __slots__ = ("_offsets", "_open", "_pending")

    def __init__(self) -> None:
        self._offsets: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        self._open: dict[str, dict[TopicPartition, dict[int, None]]] = {}
        """Producers with a pending offset, by group and partition."""

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        offsets = self._offsets.get(group_id)
        return None if offsets is None else offsets.get(partition)

    def of_group(self, group_id: str) -> GroupOffsets:
        """Return all committed offsets of a group; the caller must not change them."""
        return self._offsets.get(group_id, {})

    def group_ids(self) -> list[str]:
        """Return the groups that have a committed offset."""
        return list(self._offsets)

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self._open

    def is_open(self, group_id: str, partition: TopicPartition) -> bool:
        """Return True if an open transaction has an offset for the partition."""
        return partition in self._open.get(group_id, {})

    def open_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which an open transaction has an offset."""
        return list(self._open.get(group_id, {}))

    def pending_of(self, producer_id: int) -> Iterator[tuple[str, TopicPartition, CommittedOffset]]:
        """Yield group, partition and offset for each offset of a producer's open transaction."""
        for group_id, offsets in self._pending.get(producer_id, {}).items():
            for partition, committed in offsets.items():
                yield group_id, partition, committed

    def pending_producers(self) -> list[int]:
        return list(self._pending)

    # ------------------------------------------------------------ replay

    def put(self, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Store an offset that was committed outside of transactions."""
        self._offsets.setdefault(group_id, {})[partition] = committed

    def put_pending(
        self,
        producer_id: int,
        group_id: str,
        partition: TopicPartition,
        committed: CommittedOffset,
    ) -> None:
        """Store an offset that waits for the marker of its producer's transaction."""
        groups = self._pending.setdefault(producer_id, {})
        groups.setdefault(group_id, {})[partition] = committed
        opened = self._open.setdefault(group_id, {})
        opened.setdefault(partition, {})[producer_id] = None

    def delete(self, group_id: str, partition: TopicPartition) -> None:
        """Delete the offset, and the pending offsets of open transactions for the partition."""
        offsets = self._offsets.get(group_id)
        if offsets is not None and offsets.pop(partition, None) is not None and not offsets:
            del self._offsets[group_id]
        opened = self._open.get(group_id)
        producers = None if opened is None else opened.pop(partition, None)
        if opened is None or producers is None:
            return
        if not opened:
            del self._open[group_id]
        for producer_id in producers:
            self._drop_pending(producer_id, group_id, partition)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Apply a marker: commit or drop the pending offsets of the producer's transaction."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            for partition, committed in offsets.items():
                self._close(group_id, partition, producer_id)
                if not is_commit:
                    continue
                current = self.get(group_id, partition)
                if current is None or committed.record_offset > current.record_offset:
                    self.put(group_id, partition, committed)

    def _drop_pending(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        groups = self._pending[producer_id]
        del groups[group_id][partition]
        if not groups[group_id]:
            del groups[group_id]
        if not groups:
            del self._pending[producer_id]

    def _close(self, group_id: str, partition: TopicPartition, producer_id: int) -> None:
        opened = self._open[group_id]
        del opened[partition][producer_id]
        if not opened[partition]:
            del opened[partition]
        if not opened:
            del self._open[group_id]

    def check(self) -> None:
        """Assert that the index of open transactions matches the pending offsets."""
        opened: dict[tuple[str, TopicPartition], set[int]] = {}
        for producer_id in self._pending:
            for group_id, partition, _ in self.pending_of(producer_id):
                opened.setdefault((group_id, partition), set()).add(producer_id)
        indexed = {
            (group_id, partition): set(producers)
            for group_id, partitions in self._open.items()
            for partition, producers in partitions.items()
        }
        assert opened == indexed
        assert all(self._offsets.values())
        assert all(self._open.values())
        assert all(groups for groups in self._pending.values())
