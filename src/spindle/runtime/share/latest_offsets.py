"""The high watermarks of partitions that other brokers lead, for the lag of share groups."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from spindle.common.ids import TopicIdPartition
from spindle.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from spindle.protocol.sentinels import LATEST
from spindle.raft.ready import Destination
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.peers.port import PeerLacksVersion, Peers, PeerUnavailable
from spindle.serving.topology import endpoint_of

log = logging.getLogger(__name__)

_Topic = ListOffsetsRequest.ListOffsetsTopic


class LatestOffsetsOfLeaders:
    """Its method `ask` is the `LatestOffsets` of the handlers."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataView,
        replicas: ReplicaManager,
        listener: str,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._listener = listener
        self._peers = peers

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._peers.close()

    async def ask(self, partitions: Sequence[TopicIdPartition]) -> Mapping[TopicIdPartition, int]:
        """Return the high watermarks that are known; a partition without a leader is left out."""
        image = self._metadata.image.topics
        ends: dict[TopicIdPartition, int] = {}
        by_leader: dict[int, list[TopicIdPartition]] = {}
        for where in partitions:
            topic = image.by_id.get(where.topic_id)
            registration = None if topic is None else topic.partitions.get(where.partition)
            if topic is None or registration is None:
                continue
            hosted = self._replicas.lookup(topic.name, where.partition)
            if registration.leader != self._node_id:
                by_leader.setdefault(registration.leader, []).append(where)
            elif hosted is not None and hosted.topic_id == where.topic_id:
                ends[where] = hosted.high_watermark
        for part in await asyncio.gather(*[self._ask(*item) for item in by_leader.items()]):
            ends |= part
        return ends

    async def _ask(
        self, leader: int, partitions: list[TopicIdPartition]
    ) -> dict[TopicIdPartition, int]:
        image = self._metadata.image
        endpoint = endpoint_of(image, leader, self._listener)
        if endpoint is None:
            return {}
        wanted: dict[tuple[str, int], TopicIdPartition] = {}
        topics: dict[str, _Topic] = {}
        for where in partitions:
            name = image.topics.by_id[where.topic_id].name
            wanted[name, where.partition] = where
            topics.setdefault(name, _Topic(name=name)).partitions.append(
                _Topic.ListOffsetsPartition(partition_index=where.partition, timestamp=LATEST)
            )
        request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
        try:
            response = await self._peers.request(
                Destination(leader, endpoint.host, endpoint.port), request
            )
        except (PeerUnavailable, PeerLacksVersion) as error:
            log.info("Broker %d does not return its high watermarks: %s", leader, error)
            return {}
        assert isinstance(response, ListOffsetsResponse)
        return {
            wanted[topic.name, answer.partition_index]: answer.offset
            for topic in response.topics
            for answer in topic.partitions
            if not answer.error_code and (topic.name, answer.partition_index) in wanted
        }
