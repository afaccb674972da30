"""Offsets of transactions against a model that looks at the whole log at once."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.common.ids import TopicPartition
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.coordinator.records import CommittedOffset, OffsetRecord
from spindle.coordinator.shard import GroupShard

GROUPS = ("orders", "payments")
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
PRODUCERS = (7, 8, 9)

Key = tuple[str, TopicPartition]


class Commit(NamedTuple):
    """An offset; `producer_id` is -1 outside of transactions."""

    key: Key
    producer_id: int


class Tombstone(NamedTuple):
    key: Key


class Marker(NamedTuple):
    producer_id: int
    is_commit: bool


Entry = Commit | Tombstone | Marker
Log = dict[int, Entry]
"""Entries by offset. The committed position of a `Commit` is its own offset in the log."""

keys = st.tuples(st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
entries = st.one_of(
    st.builds(Commit, keys, st.sampled_from((-1, *PRODUCERS))),
    st.builds(Commit, keys, st.sampled_from(PRODUCERS)),
    st.builds(Tombstone, keys),
    st.builds(Marker, st.sampled_from(PRODUCERS), st.booleans()),
)
logs = st.lists(entries, max_size=40).map(lambda found: dict(enumerate(found)))


def replayed(log: Log) -> GroupShard:
    shard = GroupShard(GroupCoordinatorConfig(), lambda: bytes(16))
    for offset, entry in log.items():
        if isinstance(entry, Marker):
            shard.replay_marker(entry.producer_id, entry.is_commit)
        elif isinstance(entry, Tombstone):
            shard.replay(OffsetRecord(*entry.key, None), -1)
        else:
            committed = CommittedOffset(offset, record_offset=offset)
            shard.replay(OffsetRecord(*entry.key, committed), entry.producer_id)
        shard.check()
    return shard


def end_of(log: Log, offset: int, commit: Commit) -> Marker | None:
    """Return the marker that ends the transaction of a record."""
    for later, entry in log.items():
        if later > offset and isinstance(entry, Marker) and entry.producer_id == commit.producer_id:
            return entry
    return None


def is_committed(log: Log, offset: int, commit: Commit) -> bool:
    end = end_of(log, offset, commit)
    return commit.producer_id == -1 or (end is not None and end.is_commit)


def model(log: Log) -> tuple[dict[Key, int], set[Key]]:
    """Return the visible offsets and the keys that an open transaction has an offset for."""
    visible: dict[Key, int] = {}
    unstable = set()
    for offset, entry in log.items():
        if isinstance(entry, Marker):
            continue
        if isinstance(entry, Tombstone):
            visible.pop(entry.key, None)
            unstable.discard(entry.key)
        elif is_committed(log, offset, entry):
            visible[entry.key] = offset
        elif end_of(log, offset, entry) is None:
            unstable.add(entry.key)
    return visible, unstable


def state(shard: GroupShard) -> tuple[dict[Key, int], set[Key]]:
    offsets = shard.offsets
    visible = {
        (group_id, partition): committed.offset
        for group_id in offsets.group_ids()
        for partition, committed in offsets.of_group(group_id).items()
    }
    unstable = {
        (group_id, partition)
        for group_id in GROUPS
        for partition in PARTITIONS
        if offsets.is_open(group_id, partition)
    }
    return visible, unstable


def compacted(log: Log) -> Log:
    """Return what compaction leaves: it stops at the first open transaction."""
    first_open = min(
        (
            offset
            for offset, entry in log.items()
            if isinstance(entry, Commit)
            and entry.producer_id != -1
            and end_of(log, offset, entry) is None
        ),
        default=len(log),
    )
    newest: dict[Key, int] = {}
    for offset, entry in log.items():
        if isinstance(entry, Tombstone) or (
            isinstance(entry, Commit) and is_committed(log, offset, entry)
        ):
            newest[entry.key] = offset
    kept: Log = {}
    for offset, entry in log.items():
        if offset >= first_open or isinstance(entry, Marker) or newest.get(entry.key) == offset:
            kept[offset] = entry
    return kept


@settings(max_examples=300, deadline=None)
@given(logs)
def test_offsets_are_those_of_the_model(log: Log) -> None:
    assert state(replayed(log)) == model(log)


@settings(max_examples=300, deadline=None)
@given(logs)
def test_a_compacted_log_gives_the_same_offsets(log: Log) -> None:
    assert state(replayed(compacted(log))) == state(replayed(log))
