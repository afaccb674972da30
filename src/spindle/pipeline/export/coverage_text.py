"""Coverage and topics as JSON, in the properties of Iceberg tables and in manifests."""

from collections.abc import Mapping

from spindle.common.uuids import Uuid, parse_uuid, uuid_text
from spindle.pipeline.export.model import Coverage, PartitionIdentity


def coverage_json(coverage: Mapping[PartitionIdentity, Coverage]) -> dict[str, list[int]]:
    """Return a JSON object of TOPIC_ID:PARTITION to [start, end]."""
    return {f"{uuid_text(key.topic_id)}:{key.partition}": [*held] for key, held in coverage.items()}


def parse_coverage(content: Mapping[str, list[int]]) -> dict[PartitionIdentity, Coverage]:
    """Parse coverage from a JSON object."""
    coverages = {}
    for name, (start, end) in content.items():
        topic_id, _, partition = name.rpartition(":")
        coverages[PartitionIdentity(parse_uuid(topic_id), int(partition))] = Coverage(start, end)
    return coverages


def topics_json(topics: Mapping[str, Uuid]) -> dict[str, str]:
    """Return a JSON object of topic to topic id."""
    return {topic: uuid_text(topic_id) for topic, topic_id in topics.items()}


def parse_topics(content: Mapping[str, str]) -> dict[str, Uuid]:
    """Parse topics from a JSON object."""
    return {topic: parse_uuid(text) for topic, text in content.items()}
