"""Writes records that a share group gives up to its dead-letter topic (KIP-1191)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from spindle.common.errors import (
    RETRIABLE,
    ApiError,
    CorruptLog,
    CorruptRecords,
    ErrorCode,
)
from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.coordinator.share.dead_letters import (
    DeadLetterConfig,
    DeadLetterSource,
    DeadLetterTopic,
    fitting_letters,
    refusal,
)
from spindle.coordinator.share.share_partition import DeadLetterRange
from spindle.log.log import Log
from spindle.metadata.topics import TopicImage
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.record import decode_bounded
from spindle.protocol.sentinels import ACKS_ALL
from spindle.raft.ready import Destination
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.partition import Partition
from spindle.replicas.topic_settings import TopicSettings
from spindle.runtime.peers.port import PeerLacksVersion, Peers, PeerUnavailable
from spindle.serving.topology import endpoint_of

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
"""Attempts to create the topic or to write a batch, as in Kafka."""
_FIRST_PAUSE_S: Final = 1.0
_READ_BYTES: Final = 1024 * 1024
"""Bytes that are read at once from the log to copy records."""
_TIMEOUT_MS: Final = 30_000
_CODES: Final = frozenset(ErrorCode)

CreateTopic = Callable[[str], Awaitable[None]]
"""Requests a topic for dead letters and waits for it; raises ApiError."""
WriteDeadLetters = Callable[[Partition, str, DeadLetterRange], Awaitable[None]]
"""Writes records of a partition for a group.

Raises ApiError if they cannot be written, LogDirectoryFailed if their own disk has failed.
"""


class DeadLetterWriter:
    """Its method `write` is the `WriteDeadLetters` of share partitions.

    Attributes:
        written: number of records by group.
        produced: number of requests by group.
        failed: number of requests that failed for good, by group.
    """

    def __init__(
        self,
        node: NodeConfig,
        metadata: MetadataView,
        peers: Peers,
        config_of: Callable[[str], DeadLetterConfig | None],
        settings_of: Callable[[str], TopicSettings],
        create_topic: CreateTopic,
        now_ms: Callable[[], int],
    ) -> None:
        """Create a writer; `config_of` returns the present configuration of a group."""
        self._node = node
        self._metadata = metadata
        self._peers = peers
        self._config_of = config_of
        self._settings_of = settings_of
        self._create_topic = create_topic
        self._now_ms = now_ms
        self._one_copy = asyncio.Lock()  # copied records are in memory for one batch at a time
        self.written: dict[str, int] = {}
        self.produced: dict[str, int] = {}
        self.failed: dict[str, int] = {}

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._peers.close()

    async def write(self, hosted: Partition, group_id: str, letters: DeadLetterRange) -> None:
        """Write records, in as many batches as they need.

        Raises:
            ApiError: the configuration does not allow it, or the dead-letter topic cannot be
                written to. Some of the records may be written.
            LogDirectoryFailed: the records cannot be read here; the next leader can.
        """
        where = hosted.topic_partition
        source = DeadLetterSource(group_id, where.topic, where.partition)
        left = letters
        while left.first_offset <= left.last_offset:
            config = self._checked_config(group_id)
            if self._topic(config.topic) is None:
                await _repeated(partial(self._create_topic, config.topic))
                # Another client may have created it, for other records.
                config = self._checked_config(group_id)
            async with self._one_copy:
                records = await self._records(hosted, source, left, config)
                batch = build_batch(records)
            await self._produce(group_id, config.topic, where.partition, batch)
            self.written[group_id] = self.written.get(group_id, 0) + len(records)
            left = left._replace(first_offset=left.first_offset + len(records))

    # ------------------------------------------------------------ the topic

    def _checked_config(self, group_id: str) -> DeadLetterConfig:
        """Return the configuration; raise ApiError INVALID_CONFIG if it cannot be followed."""
        config = self._config_of(group_id)
        if config is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"group {group_id} has no dead-letter topic")
        configs = self._metadata.image.configs
        values = BrokerValues(
            self._node, configs.broker(self._node.node_id), configs.default_broker()
        )
        accepts = None
        if self._topic(config.topic) is not None:
            accepts = self._settings_of(config.topic).accepts_dead_letters
        reason = refusal(
            DeadLetterTopic(
                config.topic,
                accepts,
                values.text("errors.deadletterqueue.topic.name.prefix"),
                values.flag("errors.deadletterqueue.auto.create.topics.enable"),
            )
        )
        if reason is not None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"group {group_id}: {reason}")
        return config

    def _topic(self, name: str) -> TopicImage | None:
        return self._metadata.image.topics.by_name.get(name)

    # ------------------------------------------------------------ the records

    async def _records(
        self,
        hosted: Partition,
        source: DeadLetterSource,
        left: DeadLetterRange,
        config: DeadLetterConfig,
    ) -> list[SimpleRecord]:
        copied: Copied = {}
        if config.copies_records:
            copied, end = await _copied(hosted, left)
            left = left._replace(last_offset=min(left.last_offset, max(end, left.first_offset)))
        max_batch_bytes = self._settings_of(config.topic).log_config.max_message_bytes
        return fitting_letters(source, left, copied, max_batch_bytes, self._now_ms())

    # ------------------------------------------------------------ writing

    async def _produce(self, group_id: str, name: str, source: int, batch: bytes) -> None:
        """Append a batch to the partition that gets the records of partition `source`."""

        async def attempt() -> None:
            self.produced[group_id] = self.produced.get(group_id, 0) + 1
            await self._produce_once(name, source, batch)

        try:
            await _repeated(attempt)
        except ApiError:
            self.failed[group_id] = self.failed.get(group_id, 0) + 1
            raise

    async def _produce_once(self, name: str, source: int, batch: bytes) -> None:
        image = self._metadata.image
        topic = image.topics.by_name.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist any more")
        index = source % len(topic.partitions)
        leader = topic.partitions[index].leader
        endpoint = endpoint_of(image, leader, self._node.inter_broker_listener_name)
        if endpoint is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{index} has no leader")
        data = ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=name, topic_id=topic.topic_id, partition_data=[data]
                )
            ],
        )
        try:
            response = await self._peers.request(
                Destination(leader, endpoint.host, endpoint.port), request
            )
        except PeerUnavailable as error:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None
        except PeerLacksVersion as error:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        _check(response, f"{name}-{index}")


def _check(response: Any, where: str) -> None:
    """Raise ApiError unless the only partition of a response has no error."""
    parts = [part for topic in response.responses for part in topic.partition_responses]
    if not parts:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response does not name {where}")
    code, message = parts[0].error_code, parts[0].error_message
    if code:
        known = ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(known, f"{where}: {message or known.name}")


async def _repeated(attempt: Callable[[], Awaitable[None]]) -> None:
    """Repeat what may succeed later; raise the ApiError of the last attempt."""
    pause_s = _FIRST_PAUSE_S
    for number in range(1, _ATTEMPTS + 1):
        try:
            await attempt()
            return
        except ApiError as error:
            if number == _ATTEMPTS or error.code not in RETRIABLE:
                raise
            log.info("Dead letters of a share group are not written yet: %s", error)
        await asyncio.sleep(pause_s)
        pause_s *= 2


Copied = dict[int, tuple[bytes | None, bytes | None]]


async def _copied(hosted: Partition, letters: DeadLetterRange) -> tuple[Copied, int]:
    """Return key and value of records by offset, and the last offset that was looked at.

    A record that cannot be read any more gets a dead letter without key and value.
    """
    executor = hosted.directory.executor
    try:
        return await executor.submit(_read, hosted.log, letters)
    except (ApiError, CorruptLog, CorruptRecords) as error:
        log.warning(
            "Dead letters for offsets %d to %d of %s have no key and value: %s",
            letters.first_offset,
            letters.last_offset,
            hosted.topic_partition,
            error,
        )
        return {}, letters.last_offset


def _read(source: Log, letters: DeadLetterRange) -> tuple[Copied, int]:
    """Read and decode, on the thread of the directory.

    Members have had the records, so they are committed, also those beyond the high watermark that a
    new leader knows.
    """
    end_offset = letters.last_offset + 1
    fetched = source.read(letters.first_offset, _READ_BYTES, end_offset, min_one_batch=True)
    copied: Copied = {}
    last_offset = letters.last_offset
    for position, header in batches(fetched.records):
        last_offset = min(header.last_offset, letters.last_offset)
        if header.is_control:
            continue
        try:
            records = decode_bounded(fetched.records, position, header)
        except CorruptRecords as error:
            # Those of the other batches are as good as ever.
            log.warning("Dead letters have no key and value: %s: %s", source.topic_partition, error)
            continue
        for record in records:
            if letters.first_offset <= record.offset <= letters.last_offset:
                copied[record.offset] = record.key, record.value
    return copied, last_offset
