"""A follower whose log has a gap after an unclean stop asks its leader whether records are missing.

The leader is not told of records behind the gap before that, so it takes no replica with a hole
into the ISR.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replica_pair import (
    NOW_MS,
    Follower,
    Leader,
    PartitionData,
    append,
    commit,
    content,
    key,
    load_again,
    new_log,
)

from spindle.log.gaps import accept_gaps
from spindle.log.log import Log
from spindle.log.log_values import Gap
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.records.batch import batches
from spindle.replication.fetcher import FindLeaderOffsets
from spindle.replication.follower_log import ConfirmGaps, TruncateTo
from spindle.testing.filesystem import MemoryFileSystem


def two_logs(count: int = 40) -> tuple[Log, Log, MemoryFileSystem]:
    """Return a leader's log and an equal one of a follower, with its files."""
    files = MemoryFileSystem()
    leader_log, log = new_log(), new_log(files=files)
    for number in range(count):
        for replica in (leader_log, log):
            append(replica, number // 15, f"{number} " + "x" * 40)
    for replica in (leader_log, log):
        commit(replica)
    assert len(log.segments) > 5
    return leader_log, log, files


def lose_tail(log: Log, files: MemoryFileSystem, segment: int, batch_count: int = 1) -> Gap:
    """Take the last batches of a segment away; return the gap."""
    path = list(log.segments)[segment].path
    read_batches = list(batches(files.read_bytes(path)))[-batch_count:]
    files.open(path).truncate(read_batches[0][0])
    return Gap(read_batches[0][1].base_offset, read_batches[-1][1].next_offset)


def copy_without(log: Log, *gaps: Gap) -> Log:
    """Return a log with all batches but those in the gaps, as compaction may have left it."""
    copy = new_log()
    for position, header in batches(content(log)):
        if not any(gap.first_offset <= header.base_offset < gap.end_offset for gap in gaps):
            end = position + header.size_bytes
            copy.append_as_follower(content(log)[position:end], 2**31 - 1)
    commit(copy)
    return copy


def test_records_that_the_leader_has_in_a_gap_are_fetched_again() -> None:
    leader_log, log, files = two_logs()
    gap = lose_tail(log, files, 2)
    log = load_again(log, files)
    assert log.unverified_gaps == (gap,)
    leader, follower = Leader(leader_log, epoch=3), Follower(log)
    followed = follower.follow(3)
    assert followed.position.fetch_offset == gap.first_offset
    follower.catch_up(leader)
    assert content(log) == content(leader_log)
    assert log.truncation_count == 1
    assert list(log.unverified_gaps) == []
    wanted = [p.fetch_offset for r in leader.requests for t in r.topics for p in t.partitions]
    assert wanted == sorted(wanted)


def test_a_gap_that_the_leader_has_too_stays() -> None:
    leader_log, log, files = two_logs()
    gaps = lose_tail(log, files, 2), lose_tail(log, files, 4, 2)
    log = load_again(log, files)
    assert log.unverified_gaps == gaps
    leader, follower = Leader(copy_without(leader_log, *gaps), epoch=3), Follower(log)
    follower.follow(3)
    follower.catch_up(leader)
    assert (log.log_end_offset, log.truncation_count) == (40, 0)
    assert list(log.unverified_gaps) == []
    append(leader.logs[0], 3, "next")
    follower.catch_up(leader)
    assert content(log) == content(leader.logs[0])


@pytest.mark.parametrize("end", ["below the gap", "at the gap", "within the gap", "behind the gap"])
def test_a_leader_whose_log_is_shorter_is_followed(end: str) -> None:
    leader_log, log, files = two_logs()
    gap = lose_tail(log, files, 2, 2)
    log = load_again(log, files)
    middle = gap.first_offset + 1
    offsets = {
        "below the gap": 5,
        "at the gap": gap.first_offset,
        "within the gap": middle,
        "behind the gap": gap.end_offset + 2,
    }
    leader_log.truncate_to(offsets[end])
    leader, follower = Leader(leader_log, epoch=2), Follower(log)
    follower.follow(2)
    follower.catch_up(leader)
    assert content(log) == content(leader_log)
    assert log.unverified_gaps == ()


def test_two_logs_that_lost_their_ends_right_after_a_roll_need_no_append_to_be_in_sync() -> None:
    """With too few replicas in sync, no append would ever come."""
    logs = []
    for _ in range(2):
        files = MemoryFileSystem()
        log = new_log(files=files)
        for number in range(10):
            append(log, 0, f"{number}")
        commit(log)
        log.roll(NOW_MS)
        lose_tail(log, files, len(log.segments) - 2)
        logs.append(load_again(log, files))
        assert logs[-1].log_end_offset == 9
    leader, follower = Leader(logs[0], epoch=1), Follower(logs[1])
    accept_gaps(leader.logs[0])
    followed = follower.follow(1)
    assert followed.position.fetch_offset == leader.logs[0].log_end_offset
    append(leader.logs[0], 1, "next")
    commit(leader.logs[0])
    follower.catch_up(leader)
    assert content(logs[1]) == content(logs[0])


@pytest.mark.parametrize("start", ["within the gap", "behind the gap", "behind the log"])
def test_records_that_the_leader_has_deleted_are_not_missing(start: str) -> None:
    leader_log, log, files = two_logs()
    gap = lose_tail(log, files, 2, 2)
    log = load_again(log, files)
    if start == "behind the log":
        for number in range(20):
            append(leader_log, 3, f"more {number} " + "x" * 40)
        commit(leader_log)
    starts = {
        "within the gap": gap.first_offset + 1,
        "behind the gap": gap.end_offset,
        "behind the log": 50,
    }
    leader_log.increment_log_start_offset(starts[start])
    leader, follower = Leader(leader_log, epoch=3), Follower(log)
    follower.follow(3)
    follower.catch_up(leader)
    begin = leader_log.log_start_offset
    assert content(log, begin) == content(leader_log, begin)
    assert log.unverified_gaps == ()


def test_only_an_answer_that_holds_records_decides() -> None:
    """Neither an empty one nor damaged records truncate anything."""
    leader_log, log, files = two_logs()
    gap = lose_tail(log, files, 2)
    log = load_again(log, files)
    good = bytes(leader_log.read(gap.first_offset, 1000, 40).records)
    damaged = good[:70] + b"\xff" + good[71:]
    behind = bytes(leader_log.read(gap.end_offset, 1000, 40).records)
    for records, work in (
        (b"", FindLeaderOffsets()),
        (good[:50], FindLeaderOffsets()),
        (damaged, FindLeaderOffsets()),
        (b"\xff" * 200, FindLeaderOffsets()),
        (good, TruncateTo(gap.first_offset)),
        (behind, ConfirmGaps(gap.end_offset)),
    ):
        follower = Follower(log)
        follower.follow(3)
        assert follower.request() is not None
        data = PartitionData(partition_index=0, high_watermark=40, records=records)
        topic = FetchResponse.FetchableTopicResponse(topic_id=key().topic_id, partitions=[data])
        (step,) = follower.fetcher.on_response(FetchResponse(responses=[topic]), NOW_MS) or []
        assert step.work == work, bytes(records[:20])


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False))
def test_any_losses_behind_the_recovery_point_are_mended_before_the_leader_counts_on_them(
    random: Random,
) -> None:
    leader_log, log, files = two_logs()
    recovery_point = random.randrange(40)
    log.flush()
    for segment in log.segments:
        if random.random() < 0.4:
            kept = max(0, recovery_point - segment.base_offset)
            read_batches = list(batches(files.read_bytes(segment.path)))[kept:]
            if read_batches:
                at, header = random.choice(read_batches)
                torn = random.choice((0, 0, random.randrange(header.size_bytes)))
                files.open(segment.path).truncate(at + torn)
    log = load_again(log, files, recovery_point)
    append(leader_log, 3, "next")
    commit(leader_log)
    leader, follower = Leader(leader_log, epoch=3), Follower(log)
    follower.follow(3)
    for _ in range(60):
        if not follower.round(leader):
            follower.now_ms += 1000
        partitions = [p for r in leader.requests[-1:] for t in r.topics for p in t.partitions]
        for wanted in partitions:
            end = wanted.fetch_offset
            assert content(log)[: len(content_below(leader_log, end))] == content_below(
                leader_log, end
            )
    assert content(log) == content(leader_log)


def content_below(log: Log, offset: int) -> bytes:
    data = content(log)
    ends = [p + h.size_bytes for p, h in batches(data) if h.next_offset <= offset]
    return data[: ends[-1] if ends else 0]
