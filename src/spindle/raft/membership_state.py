"""A change of the voter set that the leader is working on; there is at most one (KIP-853)."""

from dataclasses import dataclass
from typing import Literal

from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.raft.voters import Voter


@dataclass(slots=True)
class VoterChange:
    """The pending change and who waits for it.

    Attributes:
        stage: `probing` while the new voter's versions are asked for, `committing` once its
            record is in the log.
        offset: of that record; -1 before.
    """

    token: int
    request: AddRaftVoterRequest | RemoveRaftVoterRequest
    deadline_ms: int
    voter: Voter | None = None
    stage: Literal["probing", "committing"] = "committing"
    offset: int = -1
    is_answered: bool = False
