"""The `quorum-state` file: the state of the current epoch (KIP-595, KIP-853).

Version 0 is written under kraft.version 0 and names the voters; version 1 has the directory id of
the voted candidate instead. One line of JSON without spaces and without a newline at its end.
"""

import json
from typing import Any, Final

from spindle.common.errors import CorruptLog
from spindle.common.uuids import ZERO_UUID, parse_uuid, uuid_text
from spindle.raft.ready import ElectionState
from spindle.raft.voters import RECONFIGURABLE_KRAFT_VERSION, ReplicaKey

FILE_NAME: Final = "quorum-state"
NOT_VOTED: Final = -1


def encode_quorum_state(state: ElectionState, kraft_version: int) -> bytes:
    """Return the content of the file."""
    voted = state.voted_key or ReplicaKey(NOT_VOTED)
    document: dict[str, Any]
    if kraft_version >= RECONFIGURABLE_KRAFT_VERSION:
        document = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "votedDirectoryId": uuid_text(voted.directory_id),
            "data_version": 1,
        }
    else:
        document = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in state.voter_ids],
            "data_version": 0,
        }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes, path: str) -> ElectionState:
    """Read the content of the file; only its first line counts.

    Raises:
        CorruptLog: it is not a quorum state of version 0 or 1.
    """
    line = data.split(b"\n", 1)[0]
    try:
        document = json.loads(line)
        version = document["data_version"]
        if version not in (0, 1):
            raise CorruptLog(path, 0, f"data_version {version} is unknown, 0 and 1 are known")
        return _state_of(document)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLog(path, 0, f"not a quorum state: {error!r}") from None


def _state_of(document: dict[str, Any]) -> ElectionState:
    voted_id = int(document["votedId"])
    directory = document.get("votedDirectoryId")
    voted_directory = parse_uuid(directory) if directory is not None else ZERO_UUID
    voters = document.get("currentVoters") or []
    return ElectionState(
        epoch=int(document["leaderEpoch"]),
        leader_id=int(document["leaderId"]),
        voted_key=ReplicaKey(voted_id, voted_directory) if voted_id >= 0 else None,
        voter_ids=tuple(int(voter["voterId"]) for voter in voters),
    )
