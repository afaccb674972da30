"""Which records of a compacted topic count as lost in a rehearsal."""

from spindle.testing.histories.events import NumberedRecord
from verification.rehearsal.keyed_clients import NewestRecords


def test_a_key_without_its_newest_acknowledged_record_is_lost() -> None:
    newest = NewestRecords("k")
    for number in (0, 1, 12, 13):
        newest.acknowledged(number)
    assert newest.lost([NumberedRecord("k", number) for number in (12, 13)]) == []
    assert newest.lost([NumberedRecord("k", number) for number in (12, 25)]) == []
    assert newest.lost([NumberedRecord("k", 0), NumberedRecord("other", 13)]) == [
        "record 12 of key k.0 was acknowledged, and the newest one in the log is 0",
        "record 13 of key k.1 was acknowledged, and the newest one in the log is none",
    ]
