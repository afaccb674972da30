"""Compare the position of a stream with what the cluster holds now: what is left, what is lost.

Since the checkpoint, a topic may have been deleted or created again, a log truncated, or records
removed by retention before the stream read them. These losses stop the stream (`failOnDataLoss`),
or it continues with the remaining records. A checkpoint of another cluster or of other topics is
always an error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, uuid_text
from spindle.pipeline.streaming.admission import Backlog
from spindle.pipeline.streaming.position import Offsets, StreamPosition


@dataclass(frozen=True, slots=True)
class AvailableOffsets:
    """The partitions that the options select, as the cluster holds them now.

    Attributes:
        ends: The high watermark of each partition, or its last stable offset (read_committed).
        topic_ids: Ids of their topics; a topic of brokers without topic ids is left out.
    """

    ends: Offsets
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)
    cluster_id: str | None = None

    def with_ends_at(self, offsets: Offsets) -> StreamPosition:
        """Return a position in these topics."""
        return StreamPosition(offsets, self.topic_ids, self.cluster_id)


@dataclass(frozen=True, slots=True)
class Continuation:
    """The continuation of a stream: what it can read, and a sentence for each loss."""

    backlog: Backlog
    losses: tuple[str, ...]


def check_checkpoint(
    position: StreamPosition, cluster_id: str | None, selects: Callable[[TopicPartition], bool]
) -> None:
    """Refuse a checkpoint of another stream.

    Args:
        selects: Whether the options select a partition, whether or not it exists.

    Raises:
        ValueError: the checkpoint comes from another cluster, or none of its topics is selected.
    """
    if None not in (position.cluster_id, cluster_id) and position.cluster_id != cluster_id:
        raise ValueError(
            f"the checkpoint comes from cluster {position.cluster_id}, but "
            f"kafka.bootstrap.servers leads to cluster {cluster_id}, where offsets mean other "
            "records. Use the brokers of the first cluster, or another checkpointLocation"
        )
    if position.offsets and not any(map(selects, position.offsets)):
        raise ValueError(
            f"the checkpoint is about {_listed(position.offsets)}, and the options select none of "
            "these partitions. It belongs to another stream: choose another checkpointLocation"
        )


def replaced_topics(position: StreamPosition, topic_ids: Mapping[str, Uuid]) -> dict[str, str]:
    """Return the topics that were deleted and created again, each with a sentence about it."""
    return {
        topic: f"topic {topic!r} was deleted and created again: its id was {uuid_text(old_id)} "
        f"and is now {uuid_text(topic_ids[topic])}"
        for topic, old_id in position.topic_ids.items()
        if topic in topic_ids and topic_ids[topic] != old_id
    }


def starts_of(position: StreamPosition, end: StreamPosition) -> dict[TopicPartition, int]:
    """Return where the stream reads on, for each partition of a later position.

    A partition that was added, or whose topic was created again, is read from offset 0, so that a
    batch that is repeated starts at the same offset.
    """
    replaced = replaced_topics(position, end.topic_ids)
    return {
        offset: 0 if offset.topic in replaced else position.offsets.get(offset, 0)
        for offset in end.offsets
    }


def start_of_first_batch(end: StreamPosition) -> StreamPosition:
    """Return where the first batch of a stream starts, which its end says.

    Raises:
        ValueError: the end was planned by the `kafka` source, which stores the start elsewhere.
    """
    if end.first_start is None:
        raise ValueError(
            "the checkpoint has one batch, which the kafka source has planned and not finished, "
            "and only that source knows where it starts. Finish the batch with the kafka source, "
            "or choose another checkpointLocation"
        )
    return StreamPosition(end.first_start, end.topic_ids, end.cluster_id)


def continue_from(
    position: StreamPosition,
    available: AvailableOffsets,
    selects: Callable[[TopicPartition], bool],
) -> Continuation:
    """Return what a stream at a position can read now, before retention is looked at."""
    replaced = replaced_topics(position, available.topic_ids)
    losses = [
        f"{sentence}. What the stream had not read of the first topic is lost"
        for sentence in replaced.values()
    ]
    for partition, offset in sorted(position.offsets.items()):
        if partition.topic in replaced:
            continue
        end = available.ends.get(partition)
        if end is None:
            reason = "does not exist any more" if selects(partition) else "is no longer selected"
            losses.append(f"{partition} {reason}; the stream had read it up to offset {offset}")
        elif end < offset:
            losses.append(
                f"{partition} ends at offset {end}, before offset {offset}, where the stream "
                "reads on. "
                "The log was truncated, or the topic was deleted and created again, or "
                "startingOffsets is beyond the end"
            )
    starts = starts_of(position, available.with_ends_at(available.ends))
    within = {
        partition: min(start, available.ends[partition]) for partition, start in starts.items()
    }
    return Continuation(Backlog(within, available.ends), tuple(losses))


def after_retention(continuation: Continuation, log_starts: Offsets) -> Continuation:
    """Return the continuation without records that retention has removed.

    Args:
        log_starts: First offsets of partitions with a backlog.
    """
    start = dict(continuation.backlog.start)
    losses = list(continuation.losses)
    for partition, log_start in sorted(log_starts.items()):
        if log_start > start[partition]:
            losses.append(
                f"offsets {start[partition]} to {log_start - 1} of {partition} were removed by "
                "retention or "
                "deleted before the stream read them"
            )
            start[partition] = min(log_start, continuation.backlog.end[partition])
    return Continuation(Backlog(start, continuation.backlog.end), tuple(losses))


def until_target(
    continuation: Continuation, available: AvailableOffsets, target: AvailableOffsets
) -> Continuation:
    """Return the continuation up to a target that was set before (Trigger.AvailableNow).

    Partitions that were added and topics that were created again since then are not read.
    """
    replaced = replaced_topics(target.with_ends_at({}), available.topic_ids)
    start, end = continuation.backlog.start, continuation.backlog.end
    limits = {
        partition: 0 if partition.topic in replaced else target.ends.get(partition, 0)
        for partition in end
    }
    limited = {
        partition: max(start[partition], min(end[partition], limits[partition]))
        for partition in end
    }
    return Continuation(Backlog(start, limited), continuation.losses)


def _listed(offsets: Offsets) -> str:
    return ", ".join(map(str, sorted(offsets)))
