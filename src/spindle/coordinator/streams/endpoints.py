"""Which partitions are served at which endpoint, for interactive queries (KIP-1071)."""

from collections.abc import Iterable

from spindle.coordinator.streams.member import StreamsMember, Tasks
from spindle.coordinator.streams.streams_group import StreamsGroup
from spindle.coordinator.streams.topology import input_topics
from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

_Endpoint = StreamsGroupHeartbeatResponse.EndpointToPartitions


def endpoints_of(
    group: StreamsGroup, members: Iterable[StreamsMember], topics: TopicsImage
) -> list[_Endpoint]:
    """Return the input partitions of the tasks of each member that has an endpoint."""
    endpoints = []
    for member in members:
        if member.endpoint is None:
            continue
        host, port = member.endpoint
        endpoints.append(
            _Endpoint(
                user_endpoint=_Endpoint.Endpoint(host=host, port=port),
                active_partitions=_partitions(group, member.assigned.active, topics),
                standby_partitions=_partitions(group, member.assigned.standby, topics),
            )
        )
    return endpoints


def _partitions(
    group: StreamsGroup, tasks: Tasks, topics: TopicsImage
) -> list[_Endpoint.TopicPartition]:
    by_topic: dict[str, set[int]] = {}
    for subtopology in () if group.topology is None else group.topology.subtopologies:
        for name in input_topics(subtopology):
            topic = topics.by_name.get(name)
            held = tasks.get(subtopology.subtopology_id, frozenset())
            if topic is not None and held:
                by_topic.setdefault(name, set()).update(held & topic.partitions.keys())
    return [
        _Endpoint.TopicPartition(topic=name, partitions=sorted(indexes))
        for name, indexes in sorted(by_topic.items())
        if indexes
    ]
