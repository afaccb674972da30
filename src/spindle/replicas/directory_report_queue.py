"""Directory assignments that the controller has not acknowledged yet (KIP-858).

Pure bookkeeping: a newer assignment of a partition replaces an older one. One request is in flight
at a time, with at most 2,250 assignments. The runtime sends the request that `next_request` returns
and reports its result.
"""

from collections.abc import Callable
from typing import Final

from spindle.common.uuids import Uuid
from spindle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

MAX_ASSIGNMENTS_PER_REQUEST: Final = 2250

Key = tuple[Uuid, int]


class Assignments:
    """Queue of (topic id, partition) -> directory id.

    Args:
        is_current: says whether this broker still has a replica of the partition.

    Attributes:
        on_acknowledged: called with (topic id, partition, directory id) of each assignment that
            the controller has accepted. It writes no record if the metadata has the directory.
    """

    def __init__(self, broker_id: int, is_current: Callable[[Uuid, int], bool]) -> None:
        self._broker_id = broker_id
        self._is_current = is_current
        self.on_acknowledged: Callable[[Uuid, int, Uuid], None] = lambda *_: None
        self._ready: dict[Key, Uuid] = {}
        self._in_flight: dict[Key, Uuid] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._in_flight)

    def __contains__(self, key: Key) -> bool:
        """Return True if an assignment of this replica is not acknowledged yet."""
        return key in self._ready or key in self._in_flight

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def add(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """Queue an assignment, even if the request in flight contains the same one.

        The controller may have handled that one before the replica was removed and added again, or
        while it considered the directory offline.
        """
        self._ready[topic_id, partition] = directory_id

    def next_request(self, broker_epoch: int) -> AssignReplicasToDirsRequest | None:
        """Return the next request, or None.

        Drop assignments of replicas that this broker no longer has.
        """
        assert not self._in_flight, "one request at a time"
        batch: dict[Key, Uuid] = {}
        for key in list(self._ready):
            if len(batch) == MAX_ASSIGNMENTS_PER_REQUEST:
                break
            directory_id = self._ready.pop(key)
            if self._is_current(*key):
                batch[key] = directory_id
        if not batch:
            return None
        self._in_flight = batch
        request = AssignReplicasToDirsRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        directories: dict[Uuid, AssignReplicasToDirsRequest.DirectoryData] = {}
        topics: dict[tuple[Uuid, Uuid], AssignReplicasToDirsRequest.DirectoryData.TopicData] = {}
        for (topic_id, partition), directory_id in batch.items():
            if directory_id not in directories:
                data = AssignReplicasToDirsRequest.DirectoryData(id=directory_id)
                directories[directory_id] = data
                request.directories.append(data)
            if (directory_id, topic_id) not in topics:
                topic = AssignReplicasToDirsRequest.DirectoryData.TopicData(topic_id=topic_id)
                topics[directory_id, topic_id] = topic
                directories[directory_id].topics.append(topic)
            topics[directory_id, topic_id].partitions.append(
                AssignReplicasToDirsRequest.DirectoryData.TopicData.PartitionData(
                    partition_index=partition
                )
            )
        return request

    def requeue_in_flight(self) -> None:
        """Queue unacknowledged assignments again, unless their replica has a newer one."""
        batch, self._in_flight = self._in_flight, {}
        self._ready = batch | self._ready

    def answered(self, response: AssignReplicasToDirsResponse) -> bool:
        """Drop acknowledged assignments; queue those again that were refused or left out.

        Returns:
            True if everything was acknowledged.
        """
        acknowledged: list[tuple[Key, Uuid]] = []
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = (topic.topic_id, partition.partition_index)
                    if not partition.error_code and key in self._in_flight:
                        acknowledged.append((key, self._in_flight.pop(key)))
        is_complete = not self._in_flight
        self.requeue_in_flight()
        for (topic_id, index), directory_id in acknowledged:
            self.on_acknowledged(topic_id, index, directory_id)
        return is_complete
