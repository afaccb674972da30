"""`spindle produce`: what happens to batches that the leader refuses."""

from collections.abc import Sequence
from typing import Any

from spindle.cli.admin.produce import refusal
from spindle.cli.tools.line_producer import Batches, InputLine
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType
from spindle.protocol.records.builder import SimpleRecord

HERE = TopicPartition("t", 0)
LIMIT_BYTES = 100


class Leader:
    """A producer whose leader takes batches of at most 100 bytes of values, and its client."""

    def __init__(self, limit: str | None = "100") -> None:
        self.limit = limit
        self.taken: list[list[bytes]] = []

    def send(self, partition: TopicPartition, records: Sequence[SimpleRecord]) -> None:
        values = [bytes(record.value or b"") for record in records]
        if sum(map(len, values)) > LIMIT_BYTES:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"produce to partition {partition}")
        self.taken.append(values)

    def describe_configs(
        self, kind: ConfigResourceType, names: Sequence[str], keys: Sequence[str]
    ) -> dict[str, dict[str, str | None]]:
        if self.limit is None:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
        return {"t": {"max.message.bytes": self.limit}}


def sent(leader: Any, *values: bytes) -> list[str]:
    """Send values as one batch and return what is said of those that are refused."""
    said: list[str] = []

    def on_refused(where: TopicPartition, lines: Sequence[InputLine], error: ApiError) -> None:
        said.append(refusal(leader, where, lines, error))

    batches = Batches(leader, "t", 1, 10_000, on_refused)
    for number, value in enumerate(values, 1):
        batches.add(InputLine(number, SimpleRecord(None, value, 0)))
    batches.flush()
    return said


def test_a_record_that_is_too_large_is_named_and_the_others_are_sent_in_their_order() -> None:
    leader = Leader()
    (text,) = sent(leader, b"1", b"2" * 60, b"3" * 101, b"4" * 60, b"5")
    assert text == (
        "line 3 was refused: its record has 101 bytes; max.message.bytes of the topic is 100, "
        "which includes the overhead of a batch"
    )
    assert [value[:1] for values in leader.taken for value in values] == [b"1", b"2", b"4", b"5"]


def test_a_limit_that_may_not_be_read_is_still_named() -> None:
    (text,) = sent(Leader(limit=None), b"x" * 101)
    assert text.endswith(
        "its record has 101 bytes; more than max.message.bytes of the topic allows"
    )


def test_other_refusals_have_the_lines_and_the_name_of_the_error() -> None:
    lines = [
        InputLine(4, SimpleRecord(None, b"x", 0)),
        InputLine(7, SimpleRecord(None, b"y", 0)),
    ]
    error = ApiError(ErrorCode.POLICY_VIOLATION, "produce to partition t-0")
    client: Any = Leader()
    assert refusal(client, HERE, lines, error) == (
        "2 records of the lines 4 to 7 were refused: " + str(error)
    )
    assert "POLICY_VIOLATION" in str(error)
    assert refusal(client, HERE, lines[:1], error).startswith("line 4 was refused: ")
