"""Members of classic groups that break the rules: they use each other's ids.

Random requests seldom make a group that reaches an assignment. These members do, and then disturb
it: with negative timeouts, with joins and syncs under the ids of others, and by removing members
whose requests are parked. Each of their requests must be answered in any case.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from spindle.protocol.message import Message
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest
from spindle.protocol.messages.leave_group import LeaveGroupRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest
from verification.fuzz.load_clients import PlayerMove, play

_GROUPS: Final = ("members-a", "members-b")
_INSTANCES: Final = (None, None, None, "one", "two")
_REBALANCE_MS: Final = (-(2**31), -1, 0, 300, 2_000, 2_000)
_SESSION_MS: Final = (100, 2_000, 6_000, 6_000)
_PLAYERS: Final = 8
_MAX_KNOWN: Final = 6


class HostileMembers:
    """All members of a few groups, on a connection of each."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._host = host
        self._port = port
        self._random = Random(f"{seed}: members")
        self._member_ids: dict[str, list[str]] = {group: [""] for group in _GROUPS}
        self._generations: dict[str, int] = dict.fromkeys(_GROUPS, 0)

    async def play(self, is_over: Callable[[], bool]) -> None:
        """Send requests until it is over.

        Raises:
            Finding: a request was not answered in time.
        """
        await play(self._host, self._port, _PLAYERS, self._random, self._next_move, is_over)

    def _next_move(self) -> PlayerMove:
        group_id = self._random.choice(_GROUPS)
        return PlayerMove(self._request(group_id), None, partial(self._learn, group_id))

    def _learn(self, group_id: str, response: Any) -> None:
        member_id = getattr(response, "member_id", "")
        known = self._member_ids[group_id]
        if member_id and member_id not in known:
            self._member_ids[group_id] = ["", *known[1:], member_id][-_MAX_KNOWN:]
        if getattr(response, "generation_id", 0) > 0:
            self._generations[group_id] = response.generation_id

    def _request(self, group_id: str) -> Message:
        random = self._random
        member_id = random.choice(self._member_ids[group_id])
        generation = self._generations[group_id]
        chance = random.random()
        if chance < 0.45:
            return JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=random.choice(_SESSION_MS),
                rebalance_timeout_ms=random.choice(_REBALANCE_MS),
                member_id=member_id,
                group_instance_id=random.choice(_INSTANCES),
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range")],
            )
        if chance < 0.8:
            kind = SyncGroupRequest.SyncGroupRequestAssignment
            return SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[kind(member_id=member_id, assignment=b"all")],
            )
        if chance < 0.9:
            return HeartbeatRequest(
                group_id=group_id, generation_id=generation, member_id=member_id
            )
        kind_of_member = LeaveGroupRequest.MemberIdentity
        instance_id = None if member_id else random.choice(_INSTANCES)
        return LeaveGroupRequest(
            group_id=group_id,
            members=[kind_of_member(member_id=member_id, group_instance_id=instance_id)],
        )
