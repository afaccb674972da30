"""Dead letters of share groups (KIP-1191): which records become some, where, and with what."""

import pytest
from test_share_partition import ACCEPT, REJECT, RELEASE, SETTINGS, Leader

from spindle.coordinator.share.dead_letters import (
    DeadLetterSource,
    DeadLetterTopic,
    fitting_letters,
    refusal,
)
from spindle.coordinator.share.delivery import AcknowledgeType, DeliveryState, StateBatch
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    DeadLetterRange,
    SharePartition,
)
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import build_batch
from spindle.protocol.records.record import decode_bounded

LETTERS = SETTINGS._replace(has_dead_letters=True)
ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED
SOURCE = DeadLetterSource("g", "t", 3)


def answer(s: Leader, first: int, last: int, kind: AcknowledgeType) -> None:
    batch = AcknowledgedBatch(first, last, (kind,))
    assert s.core.acknowledge("a", [batch], LETTERS, s.now_ms)


def test_a_rejected_record_is_a_dead_letter_when_that_is_stored() -> None:
    s = Leader()
    s.fetch()
    answer(s, 0, 1, REJECT)
    assert s.core.dead_letters(LETTERS) == []
    s.store()
    assert s.writes[-1].batches == [StateBatch(0, 1, ARCHIVING, 1)]
    assert (s.writes[-1].start_offset, s.writes[-1].delivery_complete_count) == (0, 0)
    letters = s.core.dead_letters(LETTERS)
    assert letters == [DeadLetterRange(0, 1, 1, True)]
    # Others go past them, but they hold their place until the dead letters are written.
    answer(s, 2, 9, ACCEPT)
    s.store()
    assert s.core.start_offset == 0
    assert s.core.has_dead_letters
    s.core.end_dead_letters(letters[0])
    s.store()
    s.core.check()
    assert (s.core.start_offset, s.core.has_dead_letters) == (10, False)


def test_a_record_that_is_delivered_too_often_is_a_dead_letter() -> None:
    s = Leader()
    for _ in range(2):
        s.fetch("a", (0, 0))
        answer(s, 0, 0, RELEASE)
        s.store()
    s.fetch("a", (0, 0))
    s.now_ms = 1_000
    assert s.core.expire(LETTERS, s.now_ms)
    assert s.core.dead_letters(LETTERS) == []
    s.store()
    assert s.core.dead_letters(LETTERS) == [DeadLetterRange(0, 0, 3, False)]


def test_a_gap_is_no_dead_letter() -> None:
    s = Leader()
    s.fetch()
    answer(s, 0, 9, AcknowledgeType.GAP)
    s.store()
    assert s.core.dead_letters(LETTERS) == []
    assert s.core.start_offset == 10


def test_a_rejection_that_is_not_stored_changes_nothing() -> None:
    s = Leader()
    s.fetch()
    answer(s, 0, 0, REJECT)
    s.store(is_stored=False)
    assert not s.core.has_dead_letters
    answer(s, 0, 0, ACCEPT)
    s.store()
    assert s.core.start_offset == 1


def test_the_next_leader_writes_dead_letters_that_this_one_has_not_written() -> None:
    core = SharePartition(5, 0, [StateBatch(6, 6, ARCHIVING, 1), StateBatch(7, 8, ARCHIVING, 3)])
    assert core.dead_letters(LETTERS) == [
        DeadLetterRange(6, 6, 1, True),
        DeadLetterRange(7, 8, 3, False),
    ]
    assert core.next_fetch_offset(LETTERS) == 5


def test_records_that_the_log_deletes_meanwhile_leave_nothing_behind() -> None:
    s = Leader()
    s.fetch()
    answer(s, 0, 4, REJECT)
    s.store()
    (letters,) = s.core.dead_letters(LETTERS)
    s.core.advance_log_start(3)
    s.core.end_dead_letters(letters)
    s.store()
    s.core.check()
    assert s.core.start_offset == 5
    s.core.end_dead_letters(letters)
    s.core.check()


def test_dead_letters_name_record_group_count_and_reason() -> None:
    copied = {7: (b"k", b"v")}
    records = fitting_letters(SOURCE, DeadLetterRange(7, 8, 2, True), copied, 10_000, 5)
    assert [(r.key, r.value, r.timestamp_ms) for r in records] == [(b"k", b"v", 5), (None, None, 5)]
    assert list(records[0].headers) == [
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]
    (often,) = fitting_letters(SOURCE, DeadLetterRange(7, 7, 5, False), {}, 10_000, 5)
    assert often.headers[-1][1] == b"Offset delivery count exceeded the threshold."


def test_a_batch_of_dead_letters_is_at_most_as_large_as_the_topic_allows() -> None:
    copied = {offset: (None, bytes(1_000)) for offset in range(10)}
    fitting = fitting_letters(SOURCE, DeadLetterRange(0, 9, 1, True), copied, 4_000, 0)
    batch = build_batch(fitting)
    assert len(fitting) == 3
    assert len(batch) <= 4_000
    ((position, header),) = batches(batch)
    assert len(decode_bounded(batch, position, header)) == 3
    # A record that is too large alone is sent: the topic refuses it with its own limit.
    assert len(fitting_letters(SOURCE, DeadLetterRange(0, 9, 1, True), copied, 100, 0)) == 1


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (DeadLetterTopic("dlq.t", True, "dlq.", False), None),
        (DeadLetterTopic("dlq.t", None, "dlq.", True), None),
        (DeadLetterTopic("anything", True, "", False), None),
        (DeadLetterTopic("dlq.t", None, "dlq.", False), "does not exist"),
        (DeadLetterTopic("orders", True, "dlq.", True), "must begin with dlq."),
        (DeadLetterTopic("dlq.t", False, "dlq.", True), "errors.deadletterqueue.group.enable=true"),
        (DeadLetterTopic("__t", True, "", True), "must not begin with __"),
    ],
)
def test_only_a_topic_that_is_meant_for_it_gets_dead_letters(
    topic: DeadLetterTopic, reason: str | None
) -> None:
    refused = refusal(topic)
    assert (refused is None) is (reason is None)
    assert reason is None or reason in str(refused)
