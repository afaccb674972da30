"""A stream goes on from its position: new partitions, deleted and replaced topics, lost records."""

import pytest

from spindle.common.ids import TopicPartition
from spindle.pipeline.streaming.continuity import (
    AvailableOffsets,
    Continuation,
    after_retention,
    check_checkpoint,
    continue_from,
    start_of_first_batch,
    starts_of,
    until_target,
)
from spindle.pipeline.streaming.position import StreamPosition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OLD, NEW = bytes(15) + b"\x07", bytes(15) + b"\x08"


def everything(_: TopicPartition) -> bool:
    return True


def continue_stream(position: StreamPosition, available: AvailableOffsets) -> Continuation:
    return continue_from(position, available, everything)


def test_a_known_partition_continues_and_a_new_one_starts_at_its_beginning() -> None:
    continuation = continue_stream(StreamPosition({A0: 5}), AvailableOffsets({A0: 9, A1: 4}))
    assert continuation.backlog.start == {A0: 5, A1: 0}
    assert continuation.backlog.end == {A0: 9, A1: 4}
    assert continuation.losses == ()


def test_a_partition_that_is_gone_is_a_loss() -> None:
    continuation = continue_stream(StreamPosition({A0: 5, B0: 3}), AvailableOffsets({A0: 9}))
    assert continuation.backlog.end == {A0: 9}
    assert continuation.losses == (
        "b-0 does not exist any more; the stream had read it up to offset 3",
    )


def test_a_topic_that_the_options_no_longer_select_is_a_loss_of_another_kind() -> None:
    continuation = continue_from(
        StreamPosition({A0: 5, B0: 3}), AvailableOffsets({A0: 9}), lambda p: p.topic == "a"
    )
    assert continuation.losses == (
        "b-0 is no longer selected; the stream had read it up to offset 3",
    )


def test_a_log_that_ends_before_the_position_is_a_loss_and_is_not_read_again() -> None:
    continuation = continue_stream(StreamPosition({A0: 5}), AvailableOffsets({A0: 3}))
    assert (continuation.backlog.start, continuation.backlog.end) == ({A0: 3}, {A0: 3})
    assert "a-0 ends at offset 3, before offset 5" in continuation.losses[0]


def test_a_topic_that_was_created_again_is_a_loss_and_starts_at_its_beginning() -> None:
    position = StreamPosition({A0: 5}, {"a": OLD})
    continuation = continue_stream(position, AvailableOffsets({A0: 900}, {"a": NEW}))
    assert (continuation.backlog.start, continuation.backlog.end) == ({A0: 0}, {A0: 900})
    assert "topic 'a' was deleted and created again" in continuation.losses[0]
    assert len(continuation.losses) == 1


def test_without_topic_ids_in_the_checkpoint_the_current_ones_are_taken() -> None:
    continuation = continue_stream(StreamPosition({A0: 5}), AvailableOffsets({A0: 9}, {"a": NEW}))
    assert (continuation.backlog.start, continuation.losses) == ({A0: 5}, ())


def test_retention_that_passes_the_stream_is_a_loss() -> None:
    continuation = continue_stream(StreamPosition({A0: 5}), AvailableOffsets({A0: 9, A1: 4}))
    kept = after_retention(continuation, {A0: 7, A1: 0})
    assert kept.backlog.start == {A0: 7, A1: 0}
    assert kept.losses == (
        "offsets 5 to 6 of a-0 were removed by retention or deleted before the stream read them",
    )
    assert after_retention(continuation, {A0: 5, A1: 0}) == continuation


def test_a_batch_that_is_repeated_starts_where_it_started() -> None:
    start = StreamPosition({A0: 5, B0: 2}, {"a": OLD, "b": OLD})
    end = StreamPosition({A0: 9, A1: 4, B0: 3}, {"a": OLD, "b": NEW})
    assert starts_of(start, end) == {A0: 5, A1: 0, B0: 0}


def test_only_the_end_of_a_first_batch_knows_its_start() -> None:
    end = StreamPosition({A0: 9}, {"a": OLD}, "c", {A0: 4})
    assert starts_of(start_of_first_batch(end), end) == {A0: 4}
    with pytest.raises(ValueError, match="which the kafka source has planned and not finished"):
        start_of_first_batch(StreamPosition({A0: 9}))


def test_a_target_holds_partitions_that_were_added_later_and_topics_created_again() -> None:
    target = AvailableOffsets({A0: 9, B0: 9}, {"a": OLD, "b": OLD})
    now = AvailableOffsets({A0: 50, A1: 4, B0: 50}, {"a": OLD, "b": NEW})
    position = StreamPosition({A0: 5, B0: 8}, {"a": OLD, "b": OLD})
    limited = until_target(continue_stream(position, now), now, target)
    assert limited.backlog.end == {A0: 9, A1: 0, B0: 0}
    at_target = now.with_ends_at(limited.backlog.end)
    again = until_target(continue_stream(at_target, now), now, target)
    assert now.with_ends_at(again.backlog.end).is_at(at_target)


def test_a_stream_that_starts_after_its_target_stays_there() -> None:
    now, target = AvailableOffsets({A0: 50}), AvailableOffsets({A0: 9})
    limited = until_target(continue_stream(StreamPosition({A0: 20}), now), now, target)
    assert (limited.backlog.end, limited.losses) == ({A0: 20}, ())


def test_a_checkpoint_of_another_cluster_is_refused() -> None:
    position = StreamPosition({A0: 5}, cluster_id="one")
    with pytest.raises(ValueError, match=r"comes from cluster one, but .* leads to cluster two"):
        check_checkpoint(position, "two", everything)
    check_checkpoint(position, "one", everything)
    check_checkpoint(position, None, everything)
    check_checkpoint(StreamPosition({A0: 5}), "two", everything)


def test_a_checkpoint_of_other_topics_is_refused() -> None:
    with pytest.raises(ValueError, match="is about a-0, and the options select none of"):
        check_checkpoint(StreamPosition({A0: 5}), None, lambda p: p.topic == "b")
    check_checkpoint(StreamPosition({}), None, lambda _: False)
