"""A member of a classic group that copies records exactly once: its offsets are in transactions."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest
from spindle.protocol.sentinels import READ_COMMITTED
from spindle.testing.histories.events import Assigned, Delivered, Event
from verification.simulation.client import SimulatedClient
from verification.simulation.coordinator_link import OF_GROUPS, CoordinatorLink
from verification.simulation.partition_reader import PartitionReader
from verification.simulation.topic import Topic
from verification.simulation.transactional_producer import (
    ProducerFenced,
    TransactionalProducer,
    TransactionFailed,
    payload_of,
)

_PROTOCOL_TYPE: Final = "consumer"
_PROTOCOL: Final = "by turns"
_FORGOTTEN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_JOIN_AGAIN: Final = (
    *_FORGOTTEN,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
)
_SESSION_MS: Final = 3_000
_REBALANCE_MS: Final = 4_000


class Copier:
    """One member; each of its lives is a new producer instance of one transactional id.

    Attributes:
        copied: how many records it has copied, as far as it knows.
    """

    def __init__(
        self,
        name: str,
        group_id: str,
        client: SimulatedClient,
        source: Topic,
        target: Topic,
        new_producer: Callable[[], TransactionalProducer],
        note: Callable[[Event], None],
        random: Random,
    ) -> None:
        self.name = name
        self.copied = 0
        self._group_id = group_id
        self._client = client
        self._source = source
        self._target = target
        self._new_producer = new_producer
        self._note = note
        self._random = random
        self._link = CoordinatorLink(client, group_id, OF_GROUPS)
        self._producer: TransactionalProducer | None = None
        self._member_id = ""
        self._generation = -1
        self._members: list[str] = []

    @property
    def waits_for(self) -> str:
        return "nothing" if self._producer is None else self._producer.waits_for

    async def run(self, is_rough: Callable[[], bool]) -> None:
        """Copy forever; abort, crash and pause at times while it `is_rough`."""
        while True:
            self._producer = self._new_producer()
            try:
                await self._producer.start()
                while await self._take_part(self._producer, is_rough):
                    pass
            except (ProducerFenced, TransactionFailed):
                await self._client.pause()

    async def _take_part(
        self, producer: TransactionalProducer, is_rough: Callable[[], bool]
    ) -> bool:
        """Be a member for one generation; False if the process has crashed.

        Raises:
            ProducerFenced: there is a newer instance.
            TransactionFailed: a commit was refused.
        """
        joined = await self._join()
        if joined is None or not await self._sync(joined):
            await self._client.pause()
            return True
        readers = [
            PartitionReader(self._client, self._source, index, isolation_level=READ_COMMITTED)
            for index in self._own(joined)
        ]
        while True:
            for reader in readers:
                if not await self._go_to_committed(reader):
                    return True
            while await self._heartbeat():
                try:
                    if not await self._copy_some(producer, readers, is_rough):
                        break
                except TransactionFailed:
                    if producer.transaction is None:
                        raise
                    await producer.abort()
                    return True
                if is_rough() and self._random.random() < 0.05:
                    self._member_id = ""
                    return False
                await asyncio.sleep(self._random.uniform(0.02, 0.3))
            else:
                return True

    def _own(self, joined: JoinGroupResponse) -> list[int]:
        return [
            index
            for index in range(self._source.partitions)
            if self._members[index % len(self._members)] == self._member_id
        ]

    async def _copy_some(
        self,
        producer: TransactionalProducer,
        readers: list[PartitionReader],
        is_rough: Callable[[], bool],
    ) -> bool:
        """Copy what one poll of a partition gives; False if the transaction was aborted."""
        if not readers:
            return True
        reader = self._random.choice(readers)
        before = reader.position
        records = await reader.poll()
        if reader.position == before:
            return True
        name = producer.begin()
        for offset, record in records:
            self._note(Delivered(self._group_id, self.name, reader.where, offset, record))
        for _, record in records:
            await producer.send(
                self._target, reader.where.partition, record, payload_of(self._target, record, name)
            )
        await producer.send_offsets(
            self._group_id,
            self._member_id,
            self._generation,
            self._source,
            {reader.where.partition: reader.position},
        )
        chance = self._random.random() if is_rough() else 1.0
        if chance < 0.1:
            await asyncio.sleep(self._random.uniform(0.0, 4.0))
        if 0.1 <= chance < 0.25:
            await producer.abort()
            return False
        await producer.commit()
        self.copied += len(records)
        return True

    # -- the group

    async def _join(self) -> JoinGroupResponse | None:
        response: JoinGroupResponse | None = await self._link.ask(
            JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                member_id=self._member_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=_PROTOCOL)],
            )
        )
        if response is None or response.error_code:
            self._refused(response)
            if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
            return None
        self._member_id = response.member_id
        self._generation = response.generation_id
        return response

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Bring or get the list of members, by which each takes its partitions."""
        members = ",".join(sorted(member.member_id for member in joined.members)).encode()
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        response = await self._link.ask(
            SyncGroupRequest(
                group_id=self._group_id,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=_PROTOCOL,
                assignments=[
                    kind(member_id=member.member_id, assignment=members)
                    for member in joined.members
                ],
            )
        )
        if response is None or response.error_code:
            self._refused(response)
            return False
        self._members = bytes(response.assignment).decode().split(",")
        return True

    async def _heartbeat(self) -> bool:
        """Return whether the generation continues."""
        response = await self._link.ask(
            HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self._generation,
                member_id=self._member_id,
            )
        )
        self._refused(response)
        return response is None or response.error_code not in _JOIN_AGAIN

    async def _go_to_committed(self, reader: PartitionReader) -> bool:
        """Read from the stable committed offset on; False if the generation is over."""
        self._note(Assigned(self._group_id, self.name, reader.where))
        while True:
            offset = await stable_offset(self._link, self._group_id, reader.where, self._source)
            if offset is not None:
                reader.position = max(offset, 0)
                return True
            if not await self._heartbeat():
                return False
            await self._client.pause()

    def _refused(self, response: Any) -> None:
        """Forget the coordinator after no answer or an error, and a member id that is unknown."""
        code = None if response is None else response.error_code
        if code:
            self._link.forget()
        if code in _FORGOTTEN:
            self._member_id = ""


async def stable_offset(
    link: CoordinatorLink, group_id: str, where: TopicPartition, topic: Topic
) -> int | None:
    """Return the committed offset, -1 for none; None if it is not known or not stable now."""
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    row = kind.OffsetFetchRequestTopics(
        topic_id=topic.topic_id, name=where.topic, partition_indexes=[where.partition]
    )
    answer = await link.ask(
        OffsetFetchRequest(require_stable=True, groups=[kind(group_id=group_id, topics=[row])])
    )
    if answer is None or answer.groups[0].error_code:
        link.forget()
        return None
    partition = answer.groups[0].topics[0].partitions[0]
    return None if partition.error_code else int(partition.committed_offset)
