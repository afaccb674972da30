"""All share partitions of the partitions that this broker leads, and the sessions of members.

A share partition is created when the first member fetches from it. It ends with the leadership,
with an error of its coordinator, and when nobody in the group has a session here any more.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.share.ports import ShareStateStore
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    DeliverySettings,
)
from spindle.coordinator.share.share_sessions import SessionKey, ShareSession, ShareSessions
from spindle.coordinator.share.state_records import ShareKey
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.share.counts import ShareCounts
from spindle.runtime.share.dead_letter_writer import WriteDeadLetters
from spindle.runtime.share.led_partition import LedSharePartition
from spindle.runtime.share.settings import ShareDeliveryConfig
from spindle.runtime.share.share_fetch import ShareFetch
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.share_ports import FetchedSharePartition, ShareFetchTerms


class SharePartitions:
    """Implements `SharePartitionsPort`. All calls must come from one event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        store: ShareStateStore,
        config_of: Callable[[str], ShareDeliveryConfig],
        now_ms: Callable[[], int],
        max_sessions: int,
        write_dead_letters: WriteDeadLetters,
    ) -> None:
        """Create an object without share partitions."""
        self.sessions = ShareSessions(max_sessions)
        self._replicas = replicas
        self._store = store
        self._config_of = config_of
        self._now_ms = now_ms
        self._write_dead_letters = write_dead_letters
        self.counts = ShareCounts()
        self._led: dict[ShareKey, LedSharePartition] = {}
        self._by_partition: dict[TopicPartition, dict[ShareKey, None]] = {}
        self._session_counts: dict[str, int] = {}
        replicas.on_leadership(self._on_leadership)

    def __len__(self) -> int:
        return len(self._led)

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(list(self._led.values()))

    def delivery_settings(self, group_id: str) -> DeliverySettings:
        """Return the settings of records in flight that a group has now."""
        return self._config_of(group_id).delivery

    # ------------------------------------------------------------ leadership

    def _on_leadership(self, partition: Partition, is_leader: bool) -> None:
        """End the share partitions of a leadership that is over."""
        del is_leader
        for key in list(self._by_partition.get(partition.topic_partition, ())):
            self._end(key, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def on_topics_deleted(self, topic_ids: Collection[Uuid]) -> None:
        """End the share partitions of topics that the cluster has deleted."""
        for key in list(self._led):
            if key.topic_id in topic_ids:
                self._end(key, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def close(self) -> None:
        """End everything."""
        self.sessions.clear()
        for key in list(self._led):
            self._end(key, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _end(self, key: ShareKey, error: ApiError) -> None:
        led = self._led.pop(key)
        where = led.hosted.topic_partition
        keys = self._by_partition.get(where, {})
        keys.pop(key, None)
        if not keys:
            self._by_partition.pop(where, None)
        led.end(error)

    def find(self, group_id: str, where: TopicIdPartition, topic: str) -> LedSharePartition:
        """Return a share partition, which may still be reading its state.

        Raises:
            ApiError: this broker does not lead the partition.
        """
        hosted = self._hosted(where, topic)
        key = ShareKey(group_id, where.topic_id, where.partition)
        led = self._led.get(key)
        if led is not None and (
            led.hosted is not hosted
            or led.leader_epoch != hosted.leader_epoch
            or led.error is not None
        ):
            self._end(key, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            led = None
        if led is None:
            led = self._led[key] = LedSharePartition(
                key,
                hosted,
                self._replicas,
                self._store,
                self._config_of,
                self._now_ms,
                self._write_dead_letters,
                self.counts,
            )
            self._by_partition.setdefault(hosted.topic_partition, {})[key] = None
        return led

    def _hosted(self, where: TopicIdPartition, topic: str) -> Partition:
        if not topic:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        hosted = self._replicas.lookup(topic, where.partition)
        if hosted is None:
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ApiError(self._replicas.absent_error(topic, where.partition, missing))
        if hosted.topic_id != where.topic_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        code = self._replicas.local_leader_error(hosted, -1)
        if code:
            raise ApiError(code)
        return hosted

    # ------------------------------------------------------------ sessions

    def open_session(self, key: SessionKey) -> ShareSession:
        """Open a session in place of an earlier one of the member, whose records are released."""
        earlier = self.sessions.get(key)
        if earlier is not None:
            self.end_session(earlier)
        if not self._session_counts.get(key.group_id):
            self._forget_idle(key.group_id)
        session = self.sessions.open(key)
        self._session_counts[key.group_id] = self._session_counts.get(key.group_id, 0) + 1
        return session

    def end_session(self, session: ShareSession) -> None:
        """Close a session, unless that is done already, and release what its member holds."""
        key = session.key
        if self.sessions.get(key) is not session:
            return
        self.sessions.close(key)
        count = self._session_counts.pop(key.group_id) - 1
        if count:
            self._session_counts[key.group_id] = count
        for led in list(self._led.values()):
            if led.key.group_id == key.group_id:
                led.release(key.member_id)
        if not count:
            self._forget_idle(key.group_id)

    def _forget_idle(self, group_id: str) -> None:
        """End the share partitions of a group without sessions whose states are stored.

        The group's state may be changed by an administrator now.
        """
        for key, led in list(self._led.items()):
            if key.group_id == group_id:
                if led.is_idle:
                    self._end(key, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                else:
                    led.when_idle(partial(self._forget_if_unused, key, led))

    def _forget_if_unused(self, key: ShareKey, led: LedSharePartition) -> None:
        if self._led.get(key) is led and not self._session_counts.get(key.group_id):
            self._end(key, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # ------------------------------------------------------------ requests

    async def acknowledge(
        self,
        key: SessionKey,
        batches: Mapping[TopicIdPartition, tuple[str, Sequence[AcknowledgedBatch]]],
    ) -> dict[TopicIdPartition, ApiError | None]:
        """Take acknowledgements of a member; return an error for each that is refused."""
        results = await asyncio.gather(
            *[
                self._acknowledge_one(key, where, topic, part)
                for where, (topic, part) in batches.items()
            ]
        )
        return dict(zip(batches, results, strict=True))

    async def _acknowledge_one(
        self,
        key: SessionKey,
        where: TopicIdPartition,
        topic: str,
        batches: Sequence[AcknowledgedBatch],
    ) -> ApiError | None:
        try:
            led = self.find(key.group_id, where, topic)
            await led.acknowledge(key.member_id, batches)
        except ApiError as error:
            return error
        return None

    async def fetch(
        self,
        terms: ShareFetchTerms,
        memory: FetchMemory,
        has_read: Callable[[str, int], None],
    ) -> dict[TopicIdPartition, FetchedSharePartition]:
        """Return records for a member, and the errors of partitions."""
        return await ShareFetch(terms, self.find, memory, has_read, self.counts).run()
