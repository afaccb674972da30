"""The hash of Kafka's Java producer, and the range assignor."""

import pytest

from spindle.client.blocking.group_member import range_assignment
from spindle.client.partitioning import murmur2, partition_of_key
from spindle.common.ids import TopicPartition


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_have_the_hashes_of_java(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_the_partition_of_a_key() -> None:
    assert partition_of_key(b"abc", 7) == 479470107 % 7
    assert {partition_of_key(b"%d" % n, 3) for n in range(50)} == {0, 1, 2}


def test_range_assignment_gives_each_member_adjacent_partitions() -> None:
    assigned = range_assignment({"b": ["t", "u"], "a": ["t"], "c": ["t"]}, {"t": 4, "u": 2})
    assert assigned == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 1)],
        "b": [TopicPartition("t", 2), TopicPartition("u", 0), TopicPartition("u", 1)],
        "c": [TopicPartition("t", 3)],
    }
    assert range_assignment({"a": ["gone"]}, {}) == {"a": []}
