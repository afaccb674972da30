"""A broker that rebuilds its follower `t-0`, over logs in memory and with a clock that tests move.

Broker 1 follows broker 2. The controller of this file acts on each reported directory as Kafka's
does: a replica in no online directory leaves the ISR. The test plays the leader: it feeds records,
and says how many the follower lacks.
"""

import asyncio
from collections.abc import Sequence

from broker_scenario import ME, NOW_MS, BrokerScenario, topic_settings
from cluster_image import directory_of
from log_builders import batch, values

from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.common.uuids import DIRECTORY_LOST, Uuid
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.local_changes import local_changes
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.records.batch import patch_offset_and_epoch
from spindle.publication.loader import Publication
from spindle.replicas.rebuilds import Rebuild, RebuildState
from spindle.runtime.broker.replica_mover import ReplicaMover
from spindle.runtime.broker.replica_rebuilder import ReplicaRebuilder
from spindle.serving.quotas.rates import WindowedRate
from spindle.serving.quotas.replication import ReplicationQuota

LEADER = 2
WHERE = TopicPartition("t", 0)
HOME = directory_of(ME)


class RebuildingBroker(BrokerScenario):
    """Broker 1, whose replica of `t-0` has `records`.

    Attributes:
        is_deaf: the controller records no directory.
        is_queued: the controller has not acknowledged the last report.
        usable_bytes: of each directory's file system.
    """

    def __init__(
        self,
        replicas: Sequence[int] = (LEADER, ME, 3),
        *,
        min_isr: int = 2,
        directories: int = 1,
        records: Sequence[str] = ("a", "b", "c"),
    ) -> None:
        self.is_deaf = False
        self.is_queued = False
        self.usable_bytes = 1 << 40
        super().__init__(directories=directories)
        self.settings["t"] = topic_settings(min_isr=min_isr)
        places = [directory_of(broker) for broker in replicas]
        self.cluster.create("t", replicas, directories=[places])
        self.publish()
        self.feed(*records)

    def _start(self) -> None:
        quota = ReplicationQuota(WindowedRate(11, 1000, is_spread=False), 2**63 - 1, self.steady_ms)
        self.mover = ReplicaMover(self.replicas, quota, 2, lambda: True, lambda: NOW_MS)
        self.rebuilder = ReplicaRebuilder(
            self.replicas,
            self.metadata,
            self.mover.alone,
            self._assigned,
            lambda *_: self.is_queued,
            lambda topic: self.settings[topic].min_isr,
            self._capacities,
            lambda: NOW_MS,
            self.replicas._new_uuid,
        )
        super()._start()

    async def _react(self, publication: Publication) -> None:
        async with self.mover.lock:
            await self.replicas.apply(local_changes(publication.delta, ME))
            await self.replicas.put_aside_strays()
            await self.mover.settle()

    async def _capacities(self, directories: Sequence[LogDirectory]) -> dict[str, tuple[int, int]]:
        return {directory.path: (1 << 41, self.usable_bytes) for directory in directories}

    # -- the controller

    @property
    def registration(self) -> PartitionRegistration:
        """The committed state of `t-0`."""
        return self.image.topics.by_name["t"].partitions[0]

    def _assigned(self, topic_id: Uuid, index: int, directory_id: Uuid) -> None:
        self.misplaced.append((topic_id, index, directory_id))
        if not self.is_deaf:
            self.loop.call_soon(self.record, directory_id)

    def record_without_shrinking(self, directory_id: Uuid) -> None:
        """Record a directory, and leave the ISR as it is."""
        before = self.registration
        places = [
            directory_id if broker == ME else before.directory(broker) for broker in before.replicas
        ]
        self.cluster.change("t", directories=places)
        self.hear()

    def record(self, directory_id: Uuid) -> None:
        """Record a directory; without one that is online the replica leaves the ISR."""
        known = self.image.topics.by_name.get("t")
        if known is None or ME not in known.partitions[0].replicas:
            return
        before = known.partitions[0]
        places = [
            directory_id if broker == ME else before.directory(broker) for broker in before.replicas
        ]
        self.cluster.change("t", directories=places)
        if directory_id == DIRECTORY_LOST and ME in before.isr:
            self.cluster.change("t", isr=[number for number in before.isr if number != ME])
        self.hear()

    # -- the leader

    def feed(self, *texts: str) -> None:
        """Append records as the fetcher does."""
        log = self.partition().log
        for text in texts:
            records = bytearray(batch(text))
            patch_offset_and_epoch(records, 0, log.log_end_offset, 0)
            log.append_as_follower(records, 0, NOW_MS)
        log.update_high_watermark(log.log_end_offset)

    def caught_up(self) -> None:
        """Answer a fetch: the follower lacks no committed record."""
        self.fetchers.lags[self.partition()] = 0
        self.pass_time(200)

    # -- the rebuild

    def begin(self, where: TopicPartition = WHERE) -> None:
        """Ask for a rebuild, and let happen what needs no time."""
        self.run(self.rebuilder.begin(where))
        self.settle()

    def refusal(self, where: TopicPartition = WHERE) -> str:
        """Ask for a rebuild that is refused; return the sentence."""
        try:
            self.run(self.rebuilder.begin(where))
        except ApiError as error:
            return error.message or ""
        raise AssertionError("it was not refused")

    @property
    def rebuild(self) -> Rebuild:
        (only,) = self.replicas.rebuilds
        return only

    @property
    def state(self) -> RebuildState:
        return self.rebuild.state

    @property
    def values(self) -> list[str]:
        """The records of the replica."""
        return [text for _, text in values(self.partition().log)]

    def names(self) -> list[str]:
        """The partition directories, without the unique parts of their names."""
        directory = self.files.list_directory("/disk0")
        return sorted(
            name.split(".")[0] + "".join(name.rpartition("-")[1:] if "." in name else ())
            for name in directory
            if name.startswith("t-")
        )

    def expire(self) -> None:
        """Remove what waits for its deletion."""
        delay_ms = self.partition().log.config.file_delete_delay_ms
        self.directories[0].store.delete_expired(NOW_MS + delay_ms)

    def stop(self) -> None:
        """End the process without a word to the disks."""
        self.run(self._stop())

    async def _stop(self) -> None:
        await self.rebuilder.stop()
        await self.metadata.stop()
        await asyncio.sleep(0)
