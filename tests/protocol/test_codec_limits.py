"""The limits of a frame: elements of one array, of all arrays together, and tagged fields."""

import tracemalloc
from struct import error as StructError
from struct import pack

import pytest

from spindle.common.errors import ProtocolViolation
from spindle.protocol.codec import TooManyElements, decode, encode
from spindle.protocol.messages.create_partitions import CreatePartitionsResponse
from spindle.protocol.messages.describe_groups import DescribeGroupsRequest
from spindle.protocol.messages.leave_group import LeaveGroupRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest

Group = OffsetFetchRequest.OffsetFetchRequestGroup
Topic = Group.OffsetFetchRequestTopics


def test_an_array_holds_a_million_elements() -> None:
    allowed = pack(">i", 1_000_000) + b"\0\0" * 1_000_000
    request, _ = decode(DescribeGroupsRequest, 0, allowed)
    assert len(request.groups) == 1_000_000
    with pytest.raises(ProtocolViolation, match="1000001 elements, at most 1000000"):
        decode(DescribeGroupsRequest, 0, pack(">i", 1_000_001) + b"\0\0" * 1_000_001)


def test_a_count_beyond_the_bytes_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolViolation, match="topics of 999999 where 4 bytes are left"):
            decode(MetadataRequest, 1, pack(">i", 999_999) + bytes(4))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_unknown_tagged_fields_up_to_ten_thousand_are_skipped(count: int) -> None:
    tags = bytearray()
    for number in range(count):
        tags += bytes((number & 127 | 128, number >> 7, 1, 7))
    number_of_tags = bytes((count & 127 | 128, count >> 7)) if count > 127 else bytes((count,))
    data = encode(DescribeGroupsRequest(groups=["g"]), 5)[:-1] + number_of_tags + tags
    request, end = decode(DescribeGroupsRequest, 5, data)
    assert (request.groups, end) == (["g"], len(data))


def test_more_than_ten_thousand_tagged_fields_are_refused() -> None:
    data = encode(DescribeGroupsRequest(groups=["g"]), 5)[:-1] + b"\x91\x4e" + b"\x01\x00" * 10_001
    with pytest.raises(ProtocolViolation, match="10001 tagged fields"):
        decode(DescribeGroupsRequest, 5, data)


def test_elements_of_nested_arrays_count_together() -> None:
    request = OffsetFetchRequest(
        groups=[
            Group(group_id="g", topics=[Topic(name="t", partition_indexes=[1, 2]) for _ in "abc"])
            for _ in range(2)
        ]
    )
    data = encode(request, 8)
    elements = 2 + 2 * 3 + 2 * 3 * 2
    assert decode(OffsetFetchRequest, 8, data, max_elements=elements)[0] == request
    with pytest.raises(TooManyElements, match="partition_indexes"):
        decode(OffsetFetchRequest, 8, data, max_elements=elements - 1)


def test_many_small_arrays_cannot_explode_memory() -> None:
    """Each topic has six bytes and would become an object with a list."""
    data = pack(">i", -1) + pack(">i", 1_000_000) + b"\0\0\0\0\0\0" * 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements):
            decode(ListOffsetsRequest, 1, data, max_elements=500_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [4, 5])
def test_a_string_holds_32767_bytes(version: int) -> None:
    data = encode(DescribeGroupsRequest(groups=["ä" * 16_383 + "b"]), version)
    request, _ = decode(DescribeGroupsRequest, version, data)
    assert len(request.groups[0].encode()) == 32_767
    with pytest.raises(StructError):
        encode(DescribeGroupsRequest(groups=["ä" * 16_384]), version)


def test_a_longer_compact_string_is_refused() -> None:
    long_string = b"\x81\x80\x02" + b"a" * 32_768  # its length plus 1 as a varint comes first
    too_long = "string of 32768 bytes, at most 32767"
    with pytest.raises(ProtocolViolation, match=too_long):
        decode(DescribeGroupsRequest, 5, b"\x02" + long_string + b"\0\0")
    with pytest.raises(ProtocolViolation, match=too_long):  # a nullable one, the instance id
        decode(LeaveGroupRequest, 4, b"\x02g" + b"\x02" + b"\x02m" + long_string + b"\0\0")


def test_bytes_have_no_limit_but_the_frame() -> None:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(assignment=b"a" * 40_000)
    data = encode(SyncGroupRequest(assignments=[assignment]), 5)
    assert decode(SyncGroupRequest, 5, data)[0].assignments == [assignment]


@pytest.mark.parametrize("version", [1, 2])  # with and without compact strings
def test_an_error_message_that_quotes_a_long_value_is_cut_to_fit(version: int) -> None:
    row = CreatePartitionsResponse.CreatePartitionsTopicResult(error_message="no: " + "ä" * 30_000)
    data = encode(CreatePartitionsResponse(results=[row]), version)
    (decoded,) = decode(CreatePartitionsResponse, version, data)[0].results
    assert decoded.error_message == "no: " + "ä" * 16_381
