"""The metadata of a large cluster, made from a seed."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from spindle.common.ids import Endpoint, OffsetAndEpoch
from spindle.common.uuids import Uuid
from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.features import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.metadata.snapshot import register_broker_record
from spindle.metadata_log.encoding import encode_image
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, snapshot_file_name
from spindle.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)

TOPIC: Final = "scale"
PARTITIONS_PER_TOPIC: Final = 100
FIRST_BROKER: Final = 1001
SNAPSHOT_ID: Final = OffsetAndEpoch(10_000_000, 5)
"""Its offset is above the number of records, as in a cluster that has lived for a while."""


class Size(NamedTuple):
    """The size of a cluster. Each broker has its own log directories."""

    partitions: int
    brokers: int = 1000
    directories_each: int = 12
    replication_factor: int = 3
    seed: int = 1

    @property
    def topics(self) -> int:
        return -(-self.partitions // PARTITIONS_PER_TOPIC)


def make_image(size: Size) -> MetadataImage:
    """Return the metadata: unfenced brokers, and partitions on random brokers and directories."""
    random = Random(size.seed)
    delta = MetadataDelta(EMPTY_IMAGE)
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_METADATA_VERSION)
    delta.replay(level, 0)
    directories: dict[int, list[Uuid]] = {}
    for broker_id in range(FIRST_BROKER, FIRST_BROKER + size.brokers):
        directories[broker_id] = sorted(random.randbytes(16) for _ in range(size.directories_each))
        broker = _registration(broker_id, directories[broker_id], random)
        delta.replay(register_broker_record(broker, LATEST_METADATA_VERSION), broker.epoch)
    for number in range(size.topics):
        topic_id = random.randbytes(16)
        delta.replay(TopicRecord(name=f"{TOPIC}-{number}", topic_id=topic_id), 0)
        begin = number * PARTITIONS_PER_TOPIC
        for index in range(min(PARTITIONS_PER_TOPIC, size.partitions - begin)):
            brokers = random.sample(range(size.brokers), size.replication_factor)
            replicas = [FIRST_BROKER + broker for broker in brokers]
            record = PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=random.randrange(20),
                partition_epoch=random.randrange(40),
                directories=[random.choice(directories[broker]) for broker in replicas],
            )
            delta.replay(record, 0)
    last = SNAPSHOT_ID.offset - 1
    return delta.apply(MetadataProvenance(last, SNAPSHOT_ID.epoch, 0))


def _registration(broker_id: int, directories: list[Uuid], random: Random) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        epoch=broker_id,
        incarnation_id=random.randbytes(16),
        endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 9),),
        features=SUPPORTED_FEATURES,
        rack=f"rack-{broker_id % 5}",
        is_fenced=False,
        is_in_controlled_shutdown=False,
        directories=tuple(directories),
        cordoned_directories=(),
    )


def write_image(image: MetadataImage, metadata_folder: Path) -> int:
    """Write the image as the newest snapshot of a formatted node; return its size in bytes."""
    metadata_folder.mkdir(exist_ok=True)
    path = metadata_folder / snapshot_file_name(SNAPSHOT_ID)
    now_ms = time.time_ns() // 1_000_000  # an old snapshot would be deleted after the next one
    batches = encode_snapshot(
        encode_image(image), SnapshotInfo(now_ms, 0, None), epoch=SNAPSHOT_ID.epoch, now_ms=now_ms
    )
    with path.open("wb") as file:
        file.writelines(batches)
    return path.stat().st_size
