"""Produce with one partition: the commonest request, read and answered without the general codec.

`read_single_produce` and `write_single_produced` take what nearly every producer sends and gets,
and leave everything else to `codec`. The messages that they take are read and written exactly as by
the codec; tests compare the two.
"""

from struct import Struct
from struct import error as StructError
from typing import Final

from spindle.common.ports import Bytes
from spindle.common.uuids import ZERO_UUID
from spindle.protocol import versions
from spindle.protocol.codec import read_uvarint
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.sentinels import NO_LEADER_EPOCH, NO_NODE

_Topic = ProduceRequest.TopicProduceData
_Partition = _Topic.PartitionProduceData
_ONE: Final = 2
"""The compact length of an array of one element."""
_MAX_NAME_BYTES: Final = 126
"""The compact length of a longer name has two bytes."""
_REQUEST: Final = Struct(">BhiB")
"""Length of the transactional id, acks, timeout, length of the topics."""
_PARTITION: Final = Struct(">Bi")
"""Length of the partitions, index of the first."""
_ANSWER: Final = Struct(">BihqqqBBBBiB")
"""Length of the partitions; index, error, base offset, append time, log start, length of record
errors, of the error message, and tagged fields of the partition; those of the topic; throttle time
and tagged fields of the response."""
_NO_TAGS: Final = b"\0\0\0"
_new: Final = object.__new__


def read_single_produce(version: int, buffer: Bytes, position: int) -> ProduceRequest | None:
    """Return the request at `position`; None if the general codec has to read it.

    The exceptions: not exactly one partition, a transactional id, tagged fields, a long name, a
    version below 9, or a malformed request.
    """
    if version < ProduceRequest.FLEXIBLE_FROM:
        return None
    try:
        id_length, acks, timeout_ms, topics = _REQUEST.unpack_from(buffer, position)
        if id_length or topics != _ONE:
            return None
        position += _REQUEST.size
        topic = _new(_Topic)
        if version < versions.PRODUCE_TOPIC_IDS:
            length = buffer[position]
            if not 0 < length <= _MAX_NAME_BYTES + 1:
                return None
            end = position + length
            topic.topic_id = ZERO_UUID
            topic.name = str(buffer[position + 1 : end], "utf-8")
        else:
            end = position + 16
            topic.topic_id = bytes(buffer[position:end])
            topic.name = ""
        partitions, index = _PARTITION.unpack_from(buffer, end)
        if partitions != _ONE:
            return None
        length, start = read_uvarint(buffer, end + _PARTITION.size)
    except (StructError, IndexError, UnicodeDecodeError):
        return None
    end = start + length - 1
    if not length or buffer[end : end + 3] != _NO_TAGS:
        return None
    partition = _new(_Partition)
    partition.index = index
    partition.records = buffer[start:end]
    topic.partition_data = [partition]
    request = _new(ProduceRequest)
    request.transactional_id = None
    request.acks = acks
    request.timeout_ms = timeout_ms
    request.topic_data = [topic]
    return request


def write_single_produced(response: ProduceResponse, version: int, out: bytearray) -> bool:
    """Append the response to `out`; return False, and append nothing, if the codec has to do it.

    The exceptions: not exactly one partition, an error, a long name, or a version below 9.
    """
    if (
        version < ProduceResponse.FLEXIBLE_FROM
        or len(response.responses) != 1
        or response.node_endpoints
    ):
        return False
    topic = response.responses[0]
    if len(topic.partition_responses) != 1:
        return False
    part = topic.partition_responses[0]
    leader = part.current_leader
    if (
        part.error_code
        or part.record_errors
        or part.error_message is not None
        or leader.leader_id != NO_NODE
        or leader.leader_epoch != NO_LEADER_EPOCH
    ):
        return False
    if version < versions.PRODUCE_TOPIC_IDS:
        name = topic.name.encode()
        if len(name) > _MAX_NAME_BYTES:
            return False
        out += bytes((_ONE, len(name) + 1))
        out += name
    else:
        out.append(_ONE)
        out += topic.topic_id
    out += _ANSWER.pack(
        _ONE,
        part.index,
        0,
        part.base_offset,
        part.log_append_time_ms,
        part.log_start_offset,
        1,
        0,
        0,
        0,
        response.throttle_time_ms,
        0,
    )
    return True
