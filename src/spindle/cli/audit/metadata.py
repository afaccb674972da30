"""The metadata of the cluster from a metadata log in the audited directories, if there is one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spindle.audit.odd_files import refuse_odd_files
from spindle.audit.placement import ClusterPlacement, PlacedPartition, PlacedTopic
from spindle.cli.shell.reading import read_image
from spindle.common.errors import CorruptLog
from spindle.common.ids import METADATA_PARTITION
from spindle.metadata.image import MetadataImage
from spindle.metadata.topics import TopicImage

_POLICY: Final = "cleanup.policy"


def load_placement(roots: Sequence[Path]) -> ClusterPlacement | None:
    """Return the newest metadata in the directories; None if none can be read."""
    images = []
    for root in roots:
        if not (root / str(METADATA_PARTITION)).is_dir():
            continue
        try:
            refuse_odd_files(root / str(METADATA_PARTITION))
            images.append(read_image(root))
        except (CorruptLog, OSError, ValueError):
            continue  # the audit of this log says what is wrong with it
    if not images:
        return None
    newest = max(images, key=lambda image: image.provenance.last_offset)
    return ClusterPlacement(
        {topic.topic_id: _placed(newest, topic) for topic in newest.topics.by_id.values()},
        {
            directory: broker_id
            for broker_id, broker in newest.cluster.brokers.items()
            for directory in broker.directories
        },
    )


def _placed(image: MetadataImage, topic: TopicImage) -> PlacedTopic:
    own = image.configs.topic(topic.name).get(_POLICY)
    policy = own or image.configs.default_broker().get(f"log.{_POLICY}")
    return PlacedTopic(
        topic.name,
        topic.topic_id,
        None if policy is None else "compact" in policy,
        {
            number: PlacedPartition(
                each.replicas, each.directories, each.isr, each.leader, each.elr
            )
            for number, each in topic.partitions.items()
        },
    )
