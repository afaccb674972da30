"""A delivery report may have no offset, and still is an acknowledgement."""

from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Message

from spindle.testing.histories import Acknowledged, NumberedRecord, TopicPartition
from verification.rehearsal.librdkafka_clients import acknowledgement


@dataclass(frozen=True)
class Report:
    at: int | None

    def value(self) -> bytes:
        return b"1.27"

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 2

    def offset(self) -> int | None:
        return self.at


@pytest.mark.parametrize(
    ("told", "noted"), [(5, 5), (0, 0), (None, None), (-1, None), (-1001, None)]
)
def test_only_real_offsets_are_noted(told: int | None, noted: int | None) -> None:
    expected = Acknowledged(NumberedRecord("1", 27), TopicPartition("t", 2), noted)
    assert acknowledgement(cast(Message, Report(told))) == expected
