"""Members of a group of the consumer protocol (KIP-848): heartbeats alone, assigned by the broker.

They join, leave, crash and are cut off. Each answer is compared with what the other members were
told: a partition has one owner at a time.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid, uuid_text
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from verification.simulation.client import SimulatedClient
from verification.simulation.coordinator_link import MOVED, OF_GROUPS, CoordinatorLink
from verification.simulation.verdict import Verdict

_JOIN: Final = 0
_LEAVE: Final = -1
_REBALANCE_MS: Final = 3_000
_HEARTBEAT_S: Final = (0.1, 0.4)
_FENCED: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
FENCED_BY_CONVERSION: Final = (*_FENCED, ErrorCode.GROUP_ID_NOT_FOUND)
"""Errors in a group that may have become a classic one."""


class GroupOwner(Protocol):
    """A member as `ConsumerGroupOracle` sees it; see `ConsumerGroupMember`."""

    name: str
    epoch: int
    owned: "Owned"
    given: "dict[tuple[Uuid, int], GivenPartition]"
    confirmed_s: float

    @property
    def member_id(self) -> str: ...


class GivenPartition(NamedTuple):
    """When a member sent the heartbeat that gave it a partition, and when it was answered.

    `released_s` is when it first sent that it owns the partition no more; it may not know whether
    the coordinator has got that.
    """

    asked_s: float
    got_s: float
    released_s: float = math.inf


Owned = frozenset[tuple[Uuid, int]]


class ConsumerGroupOracle:
    """The owners of partitions, by the answers that the members got.

    Attributes:
        members: all that live.
        fenced: errors after which a member owns nothing, and joins again.
        leader_epoch: returns the present leader epoch of the group's partition of
            `__consumer_offsets`: a new leader loads the group.
    """

    def __init__(
        self,
        group_id: str,
        verdict: Verdict,
        fenced: tuple[ErrorCode, ...] = _FENCED,
        leader_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self.group_id = group_id
        self.leader_epoch = leader_epoch
        self.members: list[GroupOwner] = []
        self.fenced = fenced
        self._verdict = verdict

    def violated(self, what: str) -> None:
        self._verdict.violated(f"{self.group_id}: {what}")

    def confirmed(self, member: GroupOwner, asked_s: float) -> None:
        """Check a member whose heartbeat, sent at that time, was answered without an error."""
        for other in self.members:
            if other is member:
                continue
            for partition in sorted(member.given.keys() & other.owned):
                # The other one asked after this one had got the partition, and got it before this
                # heartbeat was sent: the coordinator gave it away before this one released it.
                given, held = other.given[partition], member.given[partition]
                if held.got_s < given.asked_s and given.got_s < min(asked_s, held.released_s):
                    topic_id, index = partition
                    self._verdict.violated(
                        f"{self.group_id}: {member.name} in epoch {member.epoch} and {other.name} "
                        f"in epoch {other.epoch} both own partition {index} of "
                        f"{uuid_text(topic_id)}"
                    )


class ConsumerGroupMember:
    """One member, through several lives.

    Attributes:
        epoch: its member epoch; 0 while it joins.
        owned: its partitions.
        given: since when it holds them; a partition that it has to release counts until the
            coordinator has answered the heartbeat which says so.
        confirmed_s: when a heartbeat was last answered without an error.
    """

    def __init__(
        self,
        name: str,
        oracle: ConsumerGroupOracle,
        client: SimulatedClient,
        topics: list[str],
        assignor: str,
        random: Random,
        verdict: Verdict,
        end_of_life: float = 0.04,
        leaving: float = 0.02,
    ) -> None:
        """Make a member.

        Args:
            end_of_life: probability per heartbeat that its life ends.
            leaving: probability that it ends because the member leaves; otherwise it crashes.
        """
        self.name = name
        self.epoch = _JOIN
        self.owned: Owned = frozenset()
        self.given: dict[tuple[Uuid, int], GivenPartition] = {}
        self.confirmed_s = -1.0
        self._oracle = oracle
        self._client = client
        self._link = CoordinatorLink(client, oracle.group_id, OF_GROUPS)
        self._topics = topics
        self._assignor = assignor
        self._random = random
        self._verdict = verdict
        self._end_of_life = end_of_life
        self._leaving = leaving
        self._is_known = False
        self._lives = 0
        oracle.members.append(self)

    @property
    def member_id(self) -> str:
        """The id that it has made up for its present life."""
        return f"{self.name}.{self._lives}"

    async def run(self, is_rough: Callable[[], bool], now_s: Callable[[], float]) -> None:
        """Take part forever, in one life after the other."""
        while True:
            await self.live(is_rough, now_s)

    async def live(self, is_rough: Callable[[], bool], now_s: Callable[[], float]) -> None:
        """Take part until it leaves or crashes, which it does at times while it `is_rough`.

        It pauses at times, too.
        """
        while True:
            chance = self._random.random() if is_rough() else 1.0
            if chance < self._leaving:
                await self._heartbeat(_LEAVE, now_s)
            if chance < self._end_of_life:
                self._forget()
                self._lives += 1
                return
            if chance < self._end_of_life + 0.01:
                await asyncio.sleep(self._random.uniform(0.0, 5.0))
            await self._heartbeat(self.epoch, now_s)
            await asyncio.sleep(self._random.uniform(*_HEARTBEAT_S))

    def _forget(self) -> None:
        self.epoch = _JOIN
        self.owned = frozenset()
        self.given.clear()
        self._is_known = False

    async def _heartbeat(self, epoch: int, now_s: Callable[[], float]) -> None:
        """Send one heartbeat; in full unless the last one was answered."""
        is_full, asked_s, reported = not self._is_known, now_s(), self.owned
        if is_full:
            self._release(asked_s)
        answer = await self._link.ask(self._request(epoch, is_full=is_full))
        self._is_known = answer is not None and answer.error_code == ErrorCode.NONE
        if answer is None:
            return
        code = answer.error_code
        if code in MOVED:
            self._link.forget()
        elif code in self._oracle.fenced:
            self._forget()
        elif code not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT) and epoch != _LEAVE:
            self._verdict.violated(f"{self.member_id} was told {ErrorCode(code).name}")
        if code or epoch == _LEAVE:
            return
        self._verdict.check(
            answer.member_epoch >= self.epoch,
            f"the epoch of {self.member_id} went from {self.epoch} to {answer.member_epoch}",
        )
        self._oracle.confirmed(self, asked_s)
        self.given = {partition: self.given[partition] for partition in self.owned}
        self.epoch = answer.member_epoch
        self.confirmed_s = now_s()
        if answer.assignment is not None:
            self._take(frozenset(_partitions(answer.assignment.topic_partitions)), asked_s, now_s())
            # The coordinator may give a revoked partition away only after it was told.
            self._is_known &= self.owned == reported

    def _release(self, now_s: float) -> None:
        """Note that the next heartbeat tells what is not owned any more."""
        for partition in self.given.keys() - self.owned:
            held = self.given[partition]
            self.given[partition] = held._replace(released_s=min(held.released_s, now_s))

    def _take(self, owned: Owned, asked_s: float, now_s: float) -> None:
        new = GivenPartition(asked_s, now_s)
        self.given |= dict.fromkeys(owned - self.owned, new)
        self.owned = owned

    def _request(self, epoch: int, *, is_full: bool) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._oracle.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            topic_partitions=None,
        )
        if is_full:
            request.rebalance_timeout_ms = _REBALANCE_MS
            request.subscribed_topic_names = self._topics
            request.server_assignor = self._assignor
            by_topic: dict[Uuid, list[int]] = {}
            for topic_id, index in sorted(self.owned):
                by_topic.setdefault(topic_id, []).append(index)
            kind = ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [
                kind(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic.items()
            ]
        return request


class ConsumerGroupMembers:
    """The members of one group, and whether they have come to rest."""

    def __init__(self, oracle: ConsumerGroupOracle, topics: list[str]) -> None:
        self._oracle = oracle
        self._topics = topics

    def stuck_reason(self, since_s: float, image: MetadataImage) -> str | None:
        """Return why the partitions are not divided between all members; None if they are."""
        group_id, members = self._oracle.group_id, self._oracle.members
        for member in members:
            if member.epoch <= 0 or member.confirmed_s < since_s:
                return f"{group_id}: {member.member_id} is not in the group"
        epochs = {member.epoch for member in members}
        if len(epochs) > 1:
            return f"{group_id}: its members are in epochs {sorted(epochs)}"
        expected = {
            (topic.topic_id, index)
            for topic in image.topics.by_name.values()
            if topic.name in self._topics
            for index in topic.partitions
        }
        owned = [partition for member in members for partition in member.owned]
        if len(owned) != len(expected) or set(owned) != expected:
            return f"{group_id}: its members own {len(owned)} of {len(expected)} partitions"
        return None


def _partitions(rows: list[Any]) -> Iterator[tuple[Uuid, int]]:
    for row in rows:
        for index in row.partitions:
            yield row.topic_id, index
