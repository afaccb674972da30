"""Encode metadata records for the log, in the versions that the metadata.version requires."""

from collections.abc import Iterable, Iterator
from typing import Final

from spindle.metadata.features import METADATA_VERSION
from spindle.metadata.image import MetadataImage
from spindle.metadata.record_versions import partition_version, record_version
from spindle.metadata.snapshot import records_after_topics, records_before_topics, topic_record
from spindle.metadata_log.partition_values import PartitionValues
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.protocol.metadata_frame import frame

NEWEST_METADATA_VERSION: Final = 2**15 - 1
"""The metadata.version before the first FeatureLevelRecord: every record is written in its newest
version."""


def encode_records(
    records: Iterable[Message], metadata_version: int = NEWEST_METADATA_VERSION
) -> Iterator[bytes]:
    """Frame records that follow each other in the log or in a snapshot.

    Args:
        metadata_version: the level in force before the first of them. A FeatureLevelRecord among
            them changes the level for itself and the records after it.
    """
    level = metadata_version
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            level = record.feature_level
        yield frame(record, record_version(record, level))


def encode_image(image: MetadataImage) -> Iterator[bytes]:
    """Frame the records of a snapshot: those of `snapshot_records`, in order."""
    level = image.metadata_version
    partitions = PartitionValues(partition_version(level))
    yield from encode_records(records_before_topics(image))
    for topic in image.topics.by_id.values():
        record = topic_record(topic)
        yield frame(record, record_version(record, level))
        yield from partitions.of_topic(topic)
    yield from encode_records(records_after_topics(image), level)
