"""Reads and writes the states of share partitions, wherever their coordinators are (KIP-932).

A coordinator on this broker is called directly, another one by a request. While there is no
coordinator, or it is loading, the request is repeated until its time is over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import SHARE_STATE_TOPIC
from spindle.coordinator.partitioning import partition_for
from spindle.coordinator.share.delivery import StateBatch
from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.coordinator.share.state_shard import WrittenState
from spindle.protocol.message import Message
from spindle.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from spindle.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
)
from spindle.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from spindle.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from spindle.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from spindle.raft.ready import Destination
from spindle.replicas.metadata_view import MetadataView
from spindle.runtime.coordinator.share_coordinator import ShareCoordinator
from spindle.runtime.peers.port import PeerLacksVersion, Peers, PeerUnavailable
from spindle.serving.topology import endpoint_of

log = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT_S: Final = 15.0
"""Time after which a request has failed."""
_MAX_REQUESTS: Final = 16
"""Requests to one broker at a time, each on a connection of its own."""
_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 1.0
_REPEATED: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
)
_CODES: Final = frozenset(ErrorCode)


class ShareStateClient:
    """Implements `ShareStateStore`."""

    def __init__(
        self,
        node_id: int,
        local: ShareCoordinator,
        metadata: MetadataView,
        listener: str,
        peers: Peers,
        ensure_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """Create a client; other brokers are reached on `listener`."""
        self._node_id = node_id
        self._local = local
        self._metadata = metadata
        self._listener = listener
        self._peers = peers
        self._ensure_topic = ensure_topic
        self._turns: dict[int, asyncio.Semaphore] = {}

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._peers.close()

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin or reset a state."""
        cls = InitializeShareGroupStateRequest
        data = cls.InitializeStateData.PartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        topic = cls.InitializeStateData(topic_id=key.topic_id, partitions=[data])
        request = cls(group_id=key.group_id, topics=[topic])
        await self._repeat(
            key,
            lambda: self._local.initialize(key, state_epoch, start_offset),
            request,
            lambda _: None,
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> Snapshot:
        """Return a state for the leader in this epoch."""
        cls = ReadShareGroupStateRequest
        data = cls.ReadStateData.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = cls.ReadStateData(topic_id=key.topic_id, partitions=[data])
        request = cls(group_id=key.group_id, topics=[topic])
        return await self._repeat(
            key,
            lambda: self._local.read(key, leader_epoch),
            request,
            lambda result: Snapshot(
                0,
                result.state_epoch,
                leader_epoch,
                result.start_offset,
                -1,
                0,
                0,
                _batches(result.state_batches),
            ),
        )

    async def write(self, key: ShareKey, written: WrittenState) -> None:
        """Store a change."""
        cls = WriteShareGroupStateRequest
        data = cls.WriteStateData.PartitionData(
            partition=key.partition,
            state_epoch=written.state_epoch,
            leader_epoch=written.leader_epoch,
            start_offset=written.start_offset,
            delivery_complete_count=written.delivery_complete_count,
            state_batches=[
                cls.WriteStateData.PartitionData.StateBatch(**batch._asdict())
                for batch in written.batches
            ],
        )
        topic = cls.WriteStateData(topic_id=key.topic_id, partitions=[data])
        request = cls(group_id=key.group_id, topics=[topic])
        await self._repeat(key, lambda: self._local.write(key, written), request, lambda _: None)

    async def summary(self, key: ShareKey) -> Snapshot | None:
        """Return a state without its batches; None if there is none."""
        if self._has_no_states():
            return None
        cls = ReadShareGroupStateSummaryRequest
        data = cls.ReadStateSummaryData.PartitionData(partition=key.partition, leader_epoch=0)
        topic = cls.ReadStateSummaryData(topic_id=key.topic_id, partitions=[data])
        request = cls(group_id=key.group_id, topics=[topic])
        return await self._repeat(
            key,
            lambda: self._local.summary(key),
            request,
            lambda result: Snapshot(
                0,
                result.state_epoch,
                result.leader_epoch,
                result.start_offset,
                result.delivery_complete_count,
                0,
                0,
                (),
            ),
        )

    async def delete(self, key: ShareKey) -> None:
        """Delete a state."""
        if self._has_no_states():
            return
        cls = DeleteShareGroupStateRequest
        data = cls.DeleteStateData.PartitionData(partition=key.partition)
        topic = cls.DeleteStateData(topic_id=key.topic_id, partitions=[data])
        request = cls(group_id=key.group_id, topics=[topic])
        await self._repeat(key, lambda: self._local.delete(key), request, lambda _: None)

    # ------------------------------------------------------------ coordinators

    def _has_no_states(self) -> bool:
        """Return True while there is no topic for them; it may never come on too few brokers."""
        return SHARE_STATE_TOPIC not in self._metadata.image.topics.by_name

    async def _repeat(
        self,
        key: ShareKey,
        local: Callable[[], Awaitable[T]],
        request: Message,
        parse: Callable[[Any], T],
    ) -> T:
        """Return the coordinator's result; repeat while no coordinator can answer."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _TIMEOUT_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._ask(key, local, request, parse)
            except ApiError as error:
                if error.code not in _REPEATED or loop.time() + pause_s > deadline_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _ask(
        self,
        key: ShareKey,
        local: Callable[[], Awaitable[T]],
        request: Message,
        parse: Callable[[Any], T],
    ) -> T:
        image = self._metadata.image
        topic = image.topics.by_name.get(SHARE_STATE_TOPIC)
        if topic is None:
            await self._ensure_topic(SHARE_STATE_TOPIC)
            image = self._metadata.image
            topic = image.topics.by_name.get(SHARE_STATE_TOPIC)
        if topic is None or not topic.partitions:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC} does not exist"
            )
        at = topic.partitions.get(partition_for(key.coordinator_key, len(topic.partitions)))
        leader = -1 if at is None else at.leader
        if leader == self._node_id:
            return await local()
        endpoint = endpoint_of(image, leader, self._listener)
        if endpoint is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        turn = self._turns.setdefault(leader, asyncio.Semaphore(_MAX_REQUESTS))
        try:
            async with turn:
                response: Any = await self._peers.request(
                    Destination(leader, endpoint.host, endpoint.port), request
                )
        except PeerUnavailable as error:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None
        except PeerLacksVersion as error:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        return parse(_only_result(response))


def _only_result(response: Any) -> Any:
    """Return the result of the only partition; raise ApiError if it is an error."""
    for topic in response.results:
        for result in topic.partitions:
            if result.error_code:
                code = result.error_code
                known = ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR
                raise ApiError(known, result.error_message)
            return result
    raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's response names no partition")


def _batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        [
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in batches
        ]
    )
