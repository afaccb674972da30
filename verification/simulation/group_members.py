"""Members of a classic group: they join, sync, heartbeat, commit, leave and crash.

Beside them, another client uses their member ids on its own connections, as administrators and
faulty clients do.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest
from spindle.raft.ready import Destination
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.consumer import GroupOffsets
from verification.simulation.group_oracle import GroupOracle
from verification.simulation.verdict import Verdict

SESSION_MS: Final = 2_000
REBALANCE_MS: Final = 3_000
ANSWER_S: Final = 45.0
"""Longer than any request may wait: for other members, an append and a shard that is loaded, and
on its way while there are cuts."""
_PROTOCOL_TYPE: Final = "simulated"
_PROTOCOL: Final = "attempts"
_SEARCH: Final = "its coordinator"
_HEARTBEAT_S: Final = (0.1, 0.4)
_FORGOTTEN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_JOIN_AGAIN: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class GroupLink:
    """Requests of one client to the coordinator of a group, wherever that is."""

    def __init__(
        self,
        group_id: str,
        client: SimulatedClient,
        finder: SimulatedClient,
        verdict: Verdict,
        life_of: Callable[[int], object] | None,
    ) -> None:
        """Report a missing response unless the node crashed meanwhile.

        Args:
            finder: looks for the coordinator, on any node, also on one that is down.
            life_of: the present life of a node; None where connections may be silent.
        """
        self.waits_for = "nothing"
        self._group_id = group_id
        self._client = client
        self._finder = finder
        self._verdict = verdict
        self._life_of = life_of
        self._coordinator: Destination | None = None

    async def ask(self, request: Any) -> Any:
        """Return the answer, or None if there is none."""
        name = type(request).__name__
        try:
            if self._coordinator is None:
                self.waits_for = _SEARCH
                self._coordinator = await self._find()
            if self._coordinator is None:
                return None
            self.waits_for = f"{name} at {self._coordinator}"
            answer = await self._ask_coordinator(self._coordinator, request)
        except PeerUnavailable:
            self._coordinator = None
            return None
        self.waits_for = "nothing"
        if getattr(answer, "error_code", 0) in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            self._coordinator = None
        return answer

    async def _ask_coordinator(self, coordinator: Destination, request: Any) -> Any:
        life = self._now_living(coordinator)
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        try:
            return await self._client.ask(coordinator, request)
        except PeerUnavailable:
            is_late = loop.time() - asked_s >= ANSWER_S
            if is_late and life is not None and life is self._now_living(coordinator):
                self._verdict.violated(
                    f"{self._group_id}: no answer for {ANSWER_S:.0f} s: {self.waits_for}"
                )
            raise

    def _now_living(self, node: Destination) -> object:
        return None if self._life_of is None else self._life_of(node.id)

    async def _find(self) -> Destination | None:
        response = await self._finder.ask_any(
            FindCoordinatorRequest(coordinator_keys=[self._group_id], key_type=0)
        )
        row = response.coordinators[0]
        return None if row.error_code else Destination(row.node_id, row.host, row.port)


class GroupMember:
    """One member, static if it has an instance id.

    Attributes:
        generation: that of its assignment; -1 while it has none.
        confirmed_s: when a heartbeat was last answered without an error.
    """

    def __init__(
        self,
        oracle: GroupOracle,
        link: GroupLink,
        client: SimulatedClient,
        random: Random,
        *,
        instance_id: str | None,
        rebalance_ms: int,
        offsets: GroupOffsets | None,
    ) -> None:
        self.generation = -1
        self.confirmed_s = -1.0
        self._oracle = oracle
        self._link = link
        self._client = client
        self._random = random
        self._instance_id = instance_id
        self._rebalance_ms = rebalance_ms
        self._offsets = offsets
        self._next_offset = 0
        self._member_id = ""

    @property
    def name(self) -> str:
        """By which assignments name it."""
        return self._instance_id or self._member_id

    @property
    def waits_for(self) -> str:
        return f"{self._oracle.group_id}: {self.name or 'a member'}: {self._link.waits_for}"

    async def run(self, is_rough: Callable[[], bool], now_s: Callable[[], float]) -> None:
        """Take part forever; leave and crash at times while it `is_rough`."""
        while True:
            joined = await self._join()
            if joined is not None and await self._sync(joined):
                await self._take_part(is_rough, now_s)
            self.generation = -1
            await self._client.pause()

    async def _join(self) -> JoinGroupResponse | None:
        response: JoinGroupResponse | None = await self._link.ask(
            JoinGroupRequest(
                group_id=self._oracle.group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=self._rebalance_ms,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=_PROTOCOL)],
            )
        )
        if response is None:
            return None
        if response.error_code in _FORGOTTEN:
            self._member_id = ""
        elif response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._member_id = response.member_id
            self._oracle.named(self._member_id)
        if response.error_code:
            return None
        self._oracle.joined(self.name, response)
        return response

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Bring or get the assignment; True if there is one."""
        given: dict[str, bytes] = {}
        if joined.members and not joined.skip_assignment:
            given = self._oracle.attempt(self.name, joined)
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        response = await self._link.ask(
            SyncGroupRequest(
                group_id=self._oracle.group_id,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=_PROTOCOL,
                assignments=[kind(member_id=m, assignment=a) for m, a in given.items()],
            )
        )
        if response is None:
            return False
        if response.error_code in _FORGOTTEN:
            self._member_id = ""
        if response.error_code:
            return False
        self.generation = joined.generation_id
        self._oracle.assigned(self.name, self.generation, joined.leader, response.assignment)
        return True

    async def _take_part(self, is_rough: Callable[[], bool], now_s: Callable[[], float]) -> None:
        """Heartbeats, until the group rebalances or the member has had enough."""
        while True:
            await asyncio.sleep(self._random.uniform(*_HEARTBEAT_S))
            chance = self._random.random()
            if is_rough() and chance < 0.15:
                if chance < 0.05:
                    await self._leave()
                if chance < 0.1:
                    self._member_id = ""
                return
            if self._offsets is not None and not self._offsets.is_over and chance < 0.5:
                await self._commit(self._offsets)
            response = await self._link.ask(
                HeartbeatRequest(
                    group_id=self._oracle.group_id,
                    generation_id=self.generation,
                    member_id=self._member_id,
                    group_instance_id=self._instance_id,
                )
            )
            if response is None:
                continue
            if response.error_code in _FORGOTTEN:
                self._member_id = ""
            if response.error_code in (*_FORGOTTEN, *_JOIN_AGAIN):
                return
            if response.error_code == ErrorCode.NONE:
                self.confirmed_s = now_s()

    async def _commit(self, offsets: GroupOffsets) -> None:
        """Commit the next offset and look at what is committed."""
        self._next_offset += 1
        await offsets.commit(
            self._next_offset, member_id=self._member_id, generation=self.generation
        )
        await offsets.check()

    async def _leave(self) -> None:
        kind = LeaveGroupRequest.MemberIdentity
        identity = kind(member_id=self._member_id, group_instance_id=self._instance_id)
        await self._link.ask(LeaveGroupRequest(group_id=self._oracle.group_id, members=[identity]))


class StaleMember:
    """Removes members, and asks in their name, on a connection of its own."""

    def __init__(
        self, oracle: GroupOracle, link: GroupLink, members: list[GroupMember], random: Random
    ) -> None:
        self._oracle = oracle
        self._link = link
        self._members = members
        self._random = random

    async def run(self, is_rough: Callable[[], bool]) -> None:
        while is_rough():
            await asyncio.sleep(self._random.uniform(0.1, 1.0))
            if self._oracle.member_ids:
                await self._link.ask(self._request(self._random.choice(self._oracle.member_ids)))

    def _request(self, member_id: str) -> Any:
        group_id = self._oracle.group_id
        if self._random.random() < 0.7:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            return LeaveGroupRequest(group_id=group_id, members=[identity])
        generation = max(member.generation for member in self._members)
        return SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
        )


class MembersOfGroup:
    """One group with its members, and whether they have come to rest."""

    def __init__(self, oracle: GroupOracle, members: list[GroupMember]) -> None:
        self._oracle = oracle
        self._members = members

    def stuck_reason(self, since_s: float) -> str | None:
        """Why the members are not together in one generation; None if they are, after a time."""
        for member in self._members:
            if member.generation < 0 or member.confirmed_s < since_s:
                return f"a member of {member.waits_for}"
        generations = {member.generation for member in self._members}
        if len(generations) > 1:
            return f"{self._oracle.group_id}: its members are in generations {generations}"
        strangers = self._oracle.strangers(
            generations.pop(), {member.name for member in self._members}
        )
        if strangers:
            return f"{self._oracle.group_id}: {strangers} are still in the group"
        return None
