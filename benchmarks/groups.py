"""The measurements of groups: rebalances of a hundred members in both protocols, and commits.

All members heartbeat every 100 ms, in both programs. With the intervals of real clients (3 s and
5 s) the figures would show little but the time until the members hear of a rebalance.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from peers.node import Node

from benchmarks.group_client import (
    Link,
    Settled,
    commit,
    commit_repeatedly,
    run,
    wait_for_coordinator,
)
from benchmarks.items import (
    KAFKA_JVM,
    OVERRIDES,
    Item,
    Metric,
    Metrics,
    Sizes,
    Subject,
    topic_of,
)
from spindle.common.errors import ErrorCode
from spindle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest
from spindle.protocol.messages.leave_group import LeaveGroupRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest

_MEMBERS = 100
_PARTITIONS = 2 * _MEMBERS
_HEARTBEAT_S = 0.1
_CHANGES = 5
"""How often a member leaves and another one joins in a run."""
_TIMEOUT_MS = 60_000
_LEAVING_EPOCH = -1
_COMMITTING_CONNECTIONS = 10
_groups = itertools.count()


class Member(Protocol):
    """A member of a group. The group is settled if all its members have the same epoch."""

    epoch: int
    owned: tuple[int, ...]

    async def live(self) -> None:
        """Join, and take part in each rebalance, until the task is cancelled."""

    async def leave(self, link: Link) -> None:
        """Leave the group over another connection, after the task of `live` has ended."""


class ClassicMember:
    """A member of the classic protocol. The leader gives each member the same number, or one more.

    An assignment is the numbers of its partitions, two bytes each.
    """

    def __init__(self, link: Link, group_id: str, topic: str, settled: Settled) -> None:
        self._link = link
        self._group_id = group_id
        self._settled = settled
        self._member_id = ""
        self.epoch = 0
        self.owned: tuple[int, ...] = ()

    async def live(self) -> None:
        while True:
            await self._rebalance()
            self._settled.changed()
            code = 0
            while not code:
                await asyncio.sleep(_HEARTBEAT_S)
                beat = HeartbeatRequest(
                    group_id=self._group_id, generation_id=self.epoch, member_id=self._member_id
                )
                code = (await self._link.ask(beat)).error_code
            _check(code, ErrorCode.REBALANCE_IN_PROGRESS)

    async def leave(self, link: Link) -> None:
        one = LeaveGroupRequest.MemberIdentity(member_id=self._member_id)
        answer = await link.ask(LeaveGroupRequest(group_id=self._group_id, members=[one]))
        _check(answer.error_code, ErrorCode.NONE)

    async def _rebalance(self) -> None:
        while True:
            joined = await self._join()
            code = await self._sync(joined)
            if not code:
                self.epoch = joined.generation_id
                return
            _check(code, ErrorCode.REBALANCE_IN_PROGRESS)

    async def _join(self) -> Any:
        while True:
            wish = JoinGroupRequest.JoinGroupRequestProtocol(name="even", metadata=b"")
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=_TIMEOUT_MS // 2,
                rebalance_timeout_ms=_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type="benchmark",
                protocols=[wish],
            )
            joined = await self._link.ask(request)
            self._member_id = joined.member_id
            if not joined.error_code:
                return joined
            _check(joined.error_code, ErrorCode.MEMBER_ID_REQUIRED)

    async def _sync(self, joined: Any) -> int:
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        shares = []
        if joined.leader == self._member_id:
            ids = [one.member_id for one in joined.members]
            shares = [
                kind(member_id=one, assignment=_as_bytes(range(place, _PARTITIONS, len(ids))))
                for place, one in enumerate(ids)
            ]
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=shares,
        )
        answer = await self._link.ask(request)
        if not answer.error_code:
            self.owned = _from_bytes(answer.assignment)
        return int(answer.error_code)


class ConsumerMember:
    """A member of the consumer protocol (KIP-848), which gives up and takes partitions at once."""

    def __init__(self, link: Link, group_id: str, topic: str, settled: Settled) -> None:
        self._link = link
        self._group_id = group_id
        self._topic = topic
        self._settled = settled
        self._member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: tuple[int, ...] = ()

    async def live(self) -> None:
        part = ConsumerGroupHeartbeatRequest.TopicPartitions
        joining = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            rebalance_timeout_ms=_TIMEOUT_MS,
            subscribed_topic_names=[self._topic],
            server_assignor="uniform",
            topic_partitions=[],
        )
        answer = await self._link.ask(joining)
        while True:
            _check(answer.error_code, ErrorCode.NONE)
            self.epoch = answer.member_epoch
            given = answer.assignment
            if given is None:
                self._settled.changed()
                await asyncio.sleep(_HEARTBEAT_S)
                owned = None
            else:
                owned = [
                    part(topic_id=one.topic_id, partitions=one.partitions)
                    for one in given.topic_partitions
                ]
                self.owned = tuple(partition for one in owned for partition in one.partitions)
                self._settled.changed()
            beat = ConsumerGroupHeartbeatRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                member_epoch=self.epoch,
                topic_partitions=owned,
            )
            answer = await self._link.ask(beat)

    async def leave(self, link: Link) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=_LEAVING_EPOCH,
            topic_partitions=None,
        )
        _check((await link.ask(request)).error_code, ErrorCode.NONE)


MemberKind = Callable[[Link, str, str, Settled], Member]


class _Group:
    """The members that are alive, the task of each, and the epoch in which they last settled."""

    def __init__(self, node: Node, kind: MemberKind, topic: str) -> None:
        self._node = node
        self._kind = kind
        self._topic = topic
        self._group_id = f"rebalanced-{next(_groups)}"
        self._settled = Settled()
        self._alive: list[tuple[Member, Link, asyncio.Task[None]]] = []
        self._epoch = 0

    async def join(self, count: int) -> float:
        """Let members join; return the seconds until all have their final assignment."""
        links = [await Link.open(self._node) for _ in range(count)]
        begin = asyncio.get_running_loop().time()
        for link in links:
            member = self._kind(link, self._group_id, self._topic, self._settled)
            self._alive.append((member, link, asyncio.create_task(member.live())))
        return await self._time_until_settled(begin)

    async def leave(self) -> float:
        """Let the last member leave; return the seconds until the others have its partitions."""
        member, own_link, task = self._alive.pop()
        await _cancelled(task)
        # The answer to a heartbeat may still be under way on the member's own connection.
        own_link.close()
        link = await Link.open(self._node)
        begin = asyncio.get_running_loop().time()
        await member.leave(link)
        link.close()
        return await self._time_until_settled(begin)

    async def close(self) -> None:
        for _, link, task in self._alive:
            await _cancelled(task)
            link.close()

    async def _time_until_settled(self, begin: float) -> float:
        waiting = asyncio.create_task(self._settled.wait(self._is_settled))
        failed = [task for _, _, task in self._alive]
        await asyncio.wait([waiting, *failed], return_when=asyncio.FIRST_COMPLETED)
        for task in failed:
            if task.done():
                waiting.cancel()
                task.result()
        self._epoch = self._alive[0][0].epoch
        return asyncio.get_running_loop().time() - begin

    def _is_settled(self) -> bool:
        epochs = {member.epoch for member, _, _ in self._alive}
        if len(epochs) > 1 or epochs.pop() <= self._epoch:
            return False
        owned = sorted(number for member, _, _ in self._alive for number in member.owned)
        return owned == list(range(_PARTITIONS))


def rebalance(kind: MemberKind) -> Callable[[Node, Sizes], Metrics]:
    """Return a benchmark of a group of a hundred members, after an unmeasured one."""

    async def measure(node: Node, topic: str) -> tuple[float, list[float], list[float]]:
        group = _Group(node, kind, topic)
        await wait_for_coordinator(node, [group._group_id])
        formed = await group.join(_MEMBERS)
        left, joined = [], []
        for _ in range(_CHANGES):
            left.append(await group.leave())
            joined.append(await group.join(1))
        await group.close()
        return formed, left, joined

    def item(node: Node, sizes: Sizes) -> Metrics:
        with topic_of(node, _PARTITIONS) as topic:
            run(measure(node, topic))
            cpu = node.cpu_s()
            formed, left, joined = run(measure(node, topic))
            return {
                "formed": formed,
                "left": statistics.median(left) * 1e3,
                "joined": statistics.median(joined) * 1e3,
                "broker_cpu": node.cpu_s() - cpu,
            }

    return item


def commits(groups: int) -> Callable[[Node, Sizes], Metrics]:
    """Return a benchmark of ten connections that commit offsets, of 1 and of 100 partitions."""

    def item(node: Node, sizes: Sizes) -> Metrics:
        group_ids = [f"committed-{next(_groups)}" for _ in range(groups)]
        metrics: Metrics = {}
        with topic_of(node, 100) as topic:
            run(wait_for_coordinator(node, group_ids))
            for partitions, count in (
                (1, sizes.latency_records),
                (100, sizes.latency_records // 5),
            ):
                requests = [commit(group_id, topic, partitions) for group_id in group_ids]
                run(commit_repeatedly(node, requests, _COMMITTING_CONNECTIONS, count // 2))
                cpu = node.cpu_s()
                seconds = run(commit_repeatedly(node, requests, _COMMITTING_CONNECTIONS, count))
                metrics[f"rate_{partitions}"] = count / seconds
                metrics[f"cpu_{partitions}"] = (node.cpu_s() - cpu) / count * 1e3
        return metrics

    return item


def _check(code: int, expected: ErrorCode) -> None:
    if code != expected:
        raise RuntimeError(f"a member was answered with {ErrorCode(code).name}")


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _as_bytes(partitions: range) -> bytes:
    return b"".join(partition.to_bytes(2, "big") for partition in partitions)


def _from_bytes(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def _node_of_groups(node_class: type[Node], folder: Path) -> Node:
    """Return a node in which rebalances begin, and are computed, at once."""
    overrides = OVERRIDES | {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
    }
    return node_class(folder, 1, overrides=overrides, jvm_options=KAFKA_JVM)


NODE_OF_GROUPS = Subject("node of groups", _node_of_groups, is_shared=True)

GROUP_ITEMS: tuple[Item, ...] = (
    *(
        Item(
            f"rebalance-{name}",
            rebalance(kind),
            (
                Metric("formed", "s until 100 members have joined", False, 1.0),
                Metric("left", "ms after one has left", False, 1.0),
                Metric("joined", "ms after one has joined", False, 1.0),
                Metric("broker_cpu", "broker CPU-s", False),
            ),
            NODE_OF_GROUPS,
        )
        for name, kind in (("classic", ClassicMember), ("consumer", ConsumerMember))
    ),
    *(
        Item(
            f"offset-commits-{groups}-{'group' if groups == 1 else 'groups'}",
            commits(groups),
            (
                Metric("rate_1", "commits/s, 1 partition", True, 1.0),
                Metric("cpu_1", "broker CPU-ms", False),
                Metric("rate_100", "commits/s, 100 partitions", True, 1.0),
                Metric("cpu_100", "broker CPU-ms", False),
            ),
            NODE_OF_GROUPS,
        )
        for groups in (1, 100)
    ),
)
