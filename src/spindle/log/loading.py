"""Create a log in an empty directory, or load one from the files of an earlier run."""

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.log.formats.partition_metadata import read_partition_metadata, write_partition_metadata
from spindle.log.leader_epochs import LeaderEpochs
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.log_values import Gap, LoadedState
from spindle.log.producers.state import ProducerState
from spindle.log.producers.transaction_changes import replay_producers
from spindle.log.recovery import (
    is_whole,
    open_segments,
    recover_segment,
    settle_interrupted_work,
)
from spindle.log.segments.segment import Segment
from spindle.log.segments.segment_list import Segments
from spindle.log.storage import LogStorage

logger = logging.getLogger(__name__)

_NEVER_MS: Final = 2**63 - 1


def create_log(
    storage: LogStorage,
    directory_name: str,
    topic_partition: TopicPartition,
    topic_id: Uuid | None,
    config: LogConfig,
    now_ms: int,
    start_offset: int = 0,
) -> Log:
    """Return a new, empty log that begins at `start_offset`.

    Its files exist when this returns, but are synced only before the first append.
    """
    path = f"{storage.path}/{directory_name}"
    storage.file_system.make_directories(path)
    if topic_id is not None:
        write_partition_metadata(storage.file_system, path, topic_id, is_durable=False)
    segment = Segment(storage.handles, path, start_offset, config, now_ms)
    segment.create()
    epochs = LeaderEpochs(storage.file_system, path)
    epochs.load()
    producers = ProducerState(storage.file_system, path, topic_partition)
    producers.map_end_offset = start_offset
    state = LoadedState(
        Segments([segment]), epochs, producers, start_offset, start_offset, start_offset
    )
    return Log(storage, path, topic_partition, topic_id, config, state, has_durable_identity=False)


def load_log(
    storage: LogStorage,
    directory_name: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
    *,
    is_clean: bool,
    recovery_point: int = 0,
    clean_offset: int = 0,
    log_start_offset: int = 0,
) -> Log:
    """Load the log of a partition directory.

    Bytes are cut off only from a torn or damaged batch to the end of its segment. Later segments
    are kept, also those after a gap. A gap is due to a power failure that lost records, or to
    compaction, here or in another replica; the files do not show which.
    `Log.unverified_gaps` has those gaps, for which a follower asks its leader.

    Args:
        config: the settings of the topic. They may be defaults, because a broker loads its logs
            before it has the metadata: nothing is removed because of them.
        is_clean: the files were closed in order; they are then trusted, except for damage that is
            visible without reading them.
        recovery_point: without a clean stop, every batch from here on is checked (exclusive end of
            the part that is known to be on the device).
        clean_offset: the exclusive end of the compacted part; 0 if nothing was compacted.
        log_start_offset: from the checkpoint; 0 if it has none.

    Raises:
        CorruptLog: a small file of the directory is malformed.
    """
    path = f"{storage.path}/{directory_name}"
    names = settle_interrupted_work(storage.handles, path, config)
    opened, unsound = open_segments(storage.handles, path, names, config, now_ms)
    is_empty = not any(segment.size_bytes for segment in opened)
    topic_id = read_partition_metadata(storage.file_system, path, may_be_torn=is_empty)
    epochs = LeaderEpochs(storage.file_system, path)
    epochs.load()
    producers = ProducerState(storage.file_system, path, topic_partition)
    producers.load_snapshot_names(names)

    log_start_offset = max(log_start_offset, opened[0].base_offset if opened else 0)
    if epochs.latest is None and not is_empty:
        # A leader uses them to find where a follower's log diverges: read the batches.
        to_recover = list(opened)
    else:
        to_recover = _segments_to_recover(opened, unsound, recovery_point, is_clean=is_clean)
    safe_offset = max(recovery_point, clean_offset)
    torn = _recover(opened, to_recover, epochs, producers, log_start_offset, safe_offset)
    gaps = _unverified_gaps(opened, torn, safe_offset)
    _drop_empty_end(opened, gaps, max(log_start_offset, safe_offset), is_clean=is_clean)
    segments, end_offset = _at_or_after_start(
        opened,
        log_start_offset,
        lambda: Segment(storage.handles, path, log_start_offset, config, now_ms),
    )
    _fit_epochs(epochs, log_start_offset, end_offset)
    has_recovered_to_end = bool(to_recover) and producers.map_end_offset == end_offset
    _load_producers(
        producers,
        segments,
        log_start_offset,
        end_offset,
        has_recovered_to_end=has_recovered_to_end,
    )
    is_trusted = is_clean and not unsound
    state = LoadedState(
        segments,
        epochs,
        producers,
        log_start_offset,
        end_offset,
        end_offset if is_trusted else min(recovery_point, end_offset),
        tuple(gap for gap in gaps if log_start_offset < gap.end_offset <= end_offset),
    )
    # A run that was killed may have created the directory and never synced it.
    return Log(
        storage, path, topic_partition, topic_id, config, state, has_durable_identity=is_clean
    )


def _segments_to_recover(
    opened: list[Segment], unsound: list[Segment], recovery_point: int, *, is_clean: bool
) -> list[Segment]:
    """Return the segments whose batches have to be read and checked, in order.

    A segment with a torn end is added to `unsound` if the log was closed in order.
    """
    if not opened:
        return list(unsound)
    if is_clean:
        if opened[-1] not in unsound and not is_whole(opened[-1]):
            unsound.append(opened[-1])
        return list(unsound)
    needed = Segments(opened).from_offset(recovery_point)
    return [segment for segment in opened if segment in needed or segment in unsound]


def _at_or_after_start(
    opened: list[Segment], log_start_offset: int, new_segment: Callable[[], Segment]
) -> tuple[Segments, int]:
    """Return the segments and the log end; begin an empty segment if all end before the start."""
    end_offset = opened[-1].end_of_batches()[0] if opened else log_start_offset
    if opened and end_offset >= log_start_offset:
        return Segments(opened), end_offset
    for segment in opened:
        segment.delete()
    fresh = new_segment()
    fresh.create()
    return Segments([fresh]), log_start_offset


def _load_producers(
    producers: ProducerState,
    segments: Segments,
    log_start_offset: int,
    end_offset: int,
    *,
    has_recovered_to_end: bool,
) -> None:
    """Replay the producers' state up to the log end, unless recovery has done so.

    No producer expires here: `producer.id.expiration.ms` may be one of the settings that are not
    known yet.
    """
    producers.remove_stray_snapshots(segments.base_offsets)
    if has_recovered_to_end:
        # Keep what recovery found: a snapshot has one batch of each producer, but clients of a
        # killed broker may send up to five batches again, and each must be recognised.
        producers.remove_snapshots_outside(log_start_offset, end_offset)
    else:
        producers.reload(log_start_offset, end_offset, 0, _NEVER_MS)
        replay_producers(segments, producers, end_offset)


def _recover(
    opened: list[Segment],
    to_recover: list[Segment],
    epochs: LeaderEpochs,
    producers: ProducerState,
    log_start_offset: int,
    safe_offset: int,
) -> list[Segment]:
    """Recover these segments in order; return those that had to be cut.

    Producer snapshots after a gap may contain batches that are lost. They are dropped: otherwise a
    lost batch that is sent again would be acknowledged as a duplicate.
    """
    torn = []
    segments = Segments(opened)
    for segment in to_recover:
        base_offset = segment.base_offset
        producers.restore(log_start_offset, base_offset, 0, _NEVER_MS)
        replay_producers(segments, producers, base_offset)
        is_torn = recover_segment(segment, epochs, producers)
        if is_torn:
            torn.append(segment)
        end_offset = producers.map_end_offset
        next_base = segments.next_base(segment)
        is_gap = next_base not in (None, end_offset) and end_offset >= safe_offset
        if is_torn or is_gap:
            producers.remove_snapshots_outside(log_start_offset, end_offset)
        producers.take_snapshot()
    return torn


def _unverified_gaps(opened: list[Segment], torn: list[Segment], safe_offset: int) -> list[Gap]:
    """Return the gaps between segments from `safe_offset` on, and those after torn segments.

    All records below `safe_offset` were on the device, so none is missing there.
    """
    gaps = []
    for segment, following in pairwise(opened):
        if following.base_offset <= safe_offset and segment not in torn:
            continue
        try:
            first_offset, _ = segment.end_of_batches()
        except CorruptLog:
            continue  # it was closed cleanly, and is not read before a request needs it
        if first_offset < following.base_offset and (
            first_offset >= safe_offset or segment in torn
        ):
            gap = Gap(first_offset, following.base_offset)
            logger.warning(
                "%s has no records from offset %d to %d: compaction left this gap, or an "
                "unclean stop lost records that were not flushed; a follower asks its leader",
                following.path,
                gap.first_offset,
                gap.end_offset - 1,
            )
            gaps.append(gap)
    return gaps


def _drop_empty_end(
    opened: list[Segment], gaps: list[Gap], known_end: int, *, is_clean: bool
) -> None:
    """Remove the empty segments at the end of the log that follow an unverified gap.

    They have no records, and a replica that lost the same records could not confirm the gap to a
    follower. This happens if power fails right after a roll: the name of the new segment is on the
    device, but the last records of the previous one are not.

        Args:
            known_end: all offsets below were flushed, so the log must not assign them again.
            is_clean: all offsets were flushed.
    """
    if is_clean:
        return
    while gaps and not opened[-1].size_bytes and known_end < opened[-1].base_offset:
        if gaps[-1].end_offset != opened[-1].base_offset:
            return
        gaps.pop()
        opened.pop().delete()


def _fit_epochs(epochs: LeaderEpochs, log_start_offset: int, end_offset: int) -> None:
    """Limit the epoch history to the log's offsets, and store what recovery added to it."""
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    if not epochs.is_stored:
        epochs.store()
