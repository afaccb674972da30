"""Members that change between the classic and the consumer protocol in turn (KIP-848).

Their group is converted both ways, and has members of both kinds meanwhile. A partition has one
owner at a time, whatever protocol its members use.
"""

import asyncio
from collections.abc import Callable
from itertools import cycle
from random import Random
from struct import Struct
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.group_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest
from verification.simulation.client import SimulatedClient
from verification.simulation.consumer_group_members import (
    ConsumerGroupMember,
    ConsumerGroupOracle,
    GivenPartition,
    Owned,
)
from verification.simulation.coordinator_link import MOVED, OF_GROUPS, CoordinatorLink
from verification.simulation.topic import Topic
from verification.simulation.verdict import Verdict

_PROTOCOL_TYPE: Final = "consumer"
_PROTOCOL: Final = "cooperative-sticky"
_SESSION_MS: Final = 1_000
_REBALANCE_MS: Final = 1_500
_HEARTBEAT_S: Final = (0.05, 0.2)
_END_OF_LIFE: Final = 0.2
"""Probability per heartbeat that a life ends."""
_LEAVING: Final = 0.16
"""Probability per heartbeat that it ends because the member leaves; otherwise it crashes."""
_PHASE_S: Final = 5.0
"""Time for which most new lives use the same protocol, as in a rolling restart of all clients."""
_FOLLOWERS: Final = 0.9
_VERSION: Final = Struct(">h")
_SUBSCRIPTION_VERSION: Final = 3
_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class ClassicLife:
    """A member of the classic protocol that gives up partitions before it joins again (KIP-429).

    Attributes:
        epoch: its generation; 0 while it has none.
        owned, given, confirmed_s: as those of a `ConsumerGroupMember`.
    """

    def __init__(
        self,
        name: str,
        oracle: ConsumerGroupOracle,
        client: SimulatedClient,
        topic: Topic,
        random: Random,
        now_s: Callable[[], float],
    ) -> None:
        self.name = name
        self.member_id = ""
        self.epoch = 0
        self.owned: Owned = frozenset()
        self.given: dict[tuple[bytes, int], GivenPartition] = {}
        self.confirmed_s = -1.0
        self._oracle = oracle
        self._link = CoordinatorLink(client, oracle.group_id, OF_GROUPS)
        self._topic = topic
        self._random = random
        self._now_s = now_s
        self._must_join = True
        self._synced_epoch = -1
        """The leader epoch in which the coordinator answered the last SyncGroup."""
        oracle.members.append(self)

    async def live(self, is_rough: Callable[[], bool]) -> None:
        """Take part until it leaves or crashes, which it does at times while it `is_rough`."""
        while True:
            chance = self._random.random() if is_rough() else 1.0
            if chance < _LEAVING:
                await self._leave()
            if chance < _END_OF_LIFE:
                return
            if chance < _END_OF_LIFE + 0.01:
                await asyncio.sleep(self._random.uniform(0.0, 5.0))
            if self._must_join:
                await self._join()
            else:
                await self._heartbeat()
            await asyncio.sleep(self._random.uniform(*_HEARTBEAT_S))

    async def _ask(self, request: Any) -> Any:
        """Return an answer without an error; None after what an error asks for was done."""
        answer = await self._link.ask(request)
        if answer is None or answer.error_code == ErrorCode.NONE:
            return answer
        if answer.error_code in MOVED:
            self._link.forget()
        elif answer.error_code in _LOST:
            self._forget(keeps_id=answer.error_code == ErrorCode.ILLEGAL_GENERATION)
        elif answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
            self._oracle.violated(f"{self.name} was told {ErrorCode(answer.error_code).name}")
        return None

    def _forget(self, *, keeps_id: bool) -> None:
        if not keeps_id:
            self.member_id = ""
        self.epoch = 0
        self.owned = frozenset()
        self.given.clear()
        self._must_join = True

    async def _join(self) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name=_PROTOCOL, metadata=self._subscription()
        )
        released = self.given.keys() - self.owned
        joined: JoinGroupResponse | None = await self._ask(
            JoinGroupRequest(
                group_id=self._oracle.group_id,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                member_id=self.member_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[protocol],
            )
        )
        if joined is None:
            return
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        for partition in released:
            del self.given[partition]
        await self._sync(joined)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        asked_s, asked_epoch = self._now_s(), self._oracle.leader_epoch()
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        shares = self._shares(joined) if joined.leader == self.member_id else {}
        answer = await self._ask(
            SyncGroupRequest(
                group_id=self._oracle.group_id,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=_PROTOCOL,
                assignments=[kind(member_id=m, assignment=_assignment(self._topic.name, share))
                             for m, share in shares.items()],
            )
        )  # fmt: skip
        if answer is None:
            self._must_join = True
            return
        self._synced_epoch = asked_epoch
        owned = frozenset((self._topic.topic_id, index) for index in _read(answer.assignment))
        new = GivenPartition(asked_s, self._now_s())
        self.given |= dict.fromkeys(owned - self.owned, new)
        # It tells with the next join that it has given partitions up.
        self._must_join = bool(self.owned - owned)
        self.owned = owned

    def _shares(self, joined: JoinGroupResponse) -> dict[str, list[int]]:
        """Deal the partitions out in turn; one that another member owns has to wait."""
        shares: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        owners: dict[int, str] = {}
        for member in joined.members:
            stored, _ = decode(
                ConsumerProtocolSubscription, _SUBSCRIPTION_VERSION, member.metadata, _VERSION.size
            )
            for topic in stored.owned_partitions:
                owners |= dict.fromkeys(topic.partitions, member.member_id)
        for index, member_id in zip(
            range(self._topic.partitions), cycle(sorted(shares)), strict=False
        ):
            if owners.get(index, member_id) == member_id:
                shares[member_id].append(index)
        return shares

    async def _heartbeat(self) -> None:
        asked_s = self._now_s()
        answer = await self._ask(
            HeartbeatRequest(
                group_id=self._oracle.group_id, generation_id=self.epoch, member_id=self.member_id
            )
        )
        if answer is not None:
            self.confirmed_s = self._now_s()
        # As in Kafka, a coordinator that loads the group answers each heartbeat without an error.
        is_loaded = self._oracle.leader_epoch() == self._synced_epoch
        if (answer is not None and is_loaded) or self._must_join:
            # It continues to read until it has joined again; one that was lost owns nothing now.
            self._oracle.confirmed(self, asked_s)

    async def _leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        await self._link.ask(LeaveGroupRequest(group_id=self._oracle.group_id, members=[identity]))

    def _subscription(self) -> bytes:
        owned = [
            ConsumerProtocolSubscription.TopicPartition(
                topic=self._topic.name, partitions=sorted(index for _, index in self.owned)
            )
        ]
        value = ConsumerProtocolSubscription(topics=[self._topic.name], owned_partitions=owned)
        return _VERSION.pack(_SUBSCRIPTION_VERSION) + encode(value, _SUBSCRIPTION_VERSION)


class RollingMember:
    """One client; each of its lives uses one of the protocols."""

    def __init__(
        self,
        name: str,
        oracle: ConsumerGroupOracle,
        client: SimulatedClient,
        topic: Topic,
        random: Random,
        verdict: Verdict,
    ) -> None:
        self._name = name
        self._oracle = oracle
        self._client = client
        self._topic = topic
        self._random = random
        self._verdict = verdict

    async def run(self, is_rough: Callable[[], bool], now_s: Callable[[], float]) -> None:
        """Live one life after the other, forever."""
        lives = 0
        while True:
            lives += 1
            name, random = f"{self._name}-{lives}", self._random
            is_classic = int(now_s() / _PHASE_S) % 2 == 0
            if is_classic == (random.random() < _FOLLOWERS):
                classic = ClassicLife(name, self._oracle, self._client, self._topic, random, now_s)
                await classic.live(is_rough)
                self._oracle.members.remove(classic)
            else:
                member = ConsumerGroupMember(
                    name,
                    self._oracle,
                    self._client,
                    [self._topic.name],
                    "uniform",
                    random,
                    self._verdict,
                    _END_OF_LIFE,
                    _LEAVING,
                )
                await member.live(is_rough, now_s)
                self._oracle.members.remove(member)
            await self._client.pause()


def _assignment(topic: str, indexes: list[int]) -> bytes:
    kind = ConsumerProtocolAssignment.TopicPartition
    value = ConsumerProtocolAssignment(assigned_partitions=[kind(topic=topic, partitions=indexes)])
    return _VERSION.pack(0) + encode(value, 0)


def _read(assignment: bytes) -> list[int]:
    if not assignment:
        return []
    (version,) = _VERSION.unpack_from(assignment)
    value, _ = decode(ConsumerProtocolAssignment, version, assignment, _VERSION.size)
    return [index for topic in value.assigned_partitions for index in topic.partitions]
