"""The quorum-state file, byte for byte as Apache Kafka 4.3.1 writes it."""

import pytest

from spindle.common.errors import CorruptLog
from spindle.common.uuids import parse_uuid
from spindle.metadata_log.quorum_state import decode_quorum_state, encode_quorum_state
from spindle.raft.ready import ElectionState
from spindle.raft.voters import ReplicaKey

RECORDED = [
    (
        0,
        ElectionState(1, 1, None, (1,)),
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}',
    ),
    (
        0,
        ElectionState(1, 1, None, ()),
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[],"data_version":0}',
    ),
    (
        0,
        ElectionState(1, 1, ReplicaKey(1), (1, 2, 3)),
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}',
    ),
    (
        1,
        ElectionState(2, 4, None, ()),
        b'{"leaderId":4,"leaderEpoch":2,"votedId":-1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    ),
    (
        1,
        ElectionState(2, 4, ReplicaKey(4, parse_uuid("fW1JEmsUTHWaku__76cQaQ")), ()),
        b'{"leaderId":4,"leaderEpoch":2,"votedId":4,'
        b'"votedDirectoryId":"fW1JEmsUTHWaku__76cQaQ","data_version":1}',
    ),
]


@pytest.mark.parametrize(("kraft_version", "state", "data"), RECORDED)
def test_the_quorum_state_is_written_as_by_kafka(
    kraft_version: int, state: ElectionState, data: bytes
) -> None:
    assert encode_quorum_state(state, kraft_version) == data


@pytest.mark.parametrize(("kraft_version", "state", "data"), RECORDED)
def test_the_quorum_state_of_kafka_is_read(
    kraft_version: int, state: ElectionState, data: bytes
) -> None:
    assert decode_quorum_state(data, "quorum-state") == state


def test_only_the_first_line_counts() -> None:
    data = RECORDED[3][2] + b"\nsomething else"
    assert decode_quorum_state(data, "quorum-state").leader_id == 4


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (b"", "not a quorum state"),
        (b"[]", "not a quorum state"),
        (b'{"leaderId":1,"leaderEpoch":1,"votedId":-1}', "data_version"),
        (b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":2}', "data_version 2"),
        (b'{"leaderId":"x","leaderEpoch":1,"votedId":-1,"data_version":1}', "invalid literal"),
        (
            b'{"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"?","data_version":1}',
            "22 characters",
        ),
    ],
)
def test_an_invalid_quorum_state_file_is_refused(data: bytes, finding: str) -> None:
    with pytest.raises(CorruptLog, match=finding) as caught:
        decode_quorum_state(data, "/d/quorum-state")
    assert caught.value.path == "/d/quorum-state"
