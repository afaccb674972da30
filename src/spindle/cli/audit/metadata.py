"""The metadata of the cluster from a metadata log in the audited directories, if there is one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spindle.audit.file_limits import refuse_odd_files
from spindle.audit.placement import (
    ClusterPlacement,
    MetadataNotRead,
    PlacedPartition,
    PlacedTopic,
)
from spindle.cli.shell.reading import read_image
from spindle.common.errors import CorruptLog, CorruptRecords, UnsupportedMetadata
from spindle.common.ids import METADATA_PARTITION
from spindle.common.text import error_text
from spindle.log.formats.names import LOG_SUFFIX
from spindle.metadata.image import MetadataImage
from spindle.metadata.topics import TopicImage
from spindle.metadata_log.quorum_state import FILE_NAME as QUORUM_STATE
from spindle.metadata_log.quorum_state import decode_quorum_state
from spindle.metadata_log.snapshots import (
    parse_snapshot_file_name,
    read_snapshot_info,
    snapshot_file_name,
)
from spindle.raft.kraft_records import apply_to_history
from spindle.raft.voters import VoterHistory, VoterSet

_POLICY: Final = "cleanup.policy"


def load_placement(roots: Sequence[Path]) -> ClusterPlacement | None:
    """Return the newest metadata in the directories; None if there is no metadata log.

    Raises:
        MetadataNotRead: no log can be read, or another release wrote one, which may be the newest.
    """
    images = []
    voters: dict[int, tuple[int, ...]] = {}
    unread: MetadataNotRead | None = None
    for root in roots:
        folder = root / str(METADATA_PARTITION)
        if not folder.is_dir():
            continue
        try:
            refuse_odd_files(folder)
            image = read_image(root)
            images.append(image)
            voters[image.provenance.last_offset] = _voters(folder)
        except UnsupportedMetadata as error:
            raise MetadataNotRead(folder, error.finding) from None
        except (CorruptLog, OSError) as error:
            # The audit of this log reports its damage; another log may have the metadata.
            unread = MetadataNotRead(folder, error_text(error))
        except ValueError:
            continue  # the folder has neither segments nor snapshots
    if not images:
        if unread is not None:
            raise unread
        return None
    newest = max(images, key=lambda image: image.provenance.last_offset)
    return ClusterPlacement(
        {topic.topic_id: _placed(newest, topic) for topic in newest.topics.by_id.values()},
        {
            directory: broker_id
            for broker_id, broker in newest.cluster.brokers.items()
            for directory in broker.directories
        },
        voters[newest.provenance.last_offset],
    )


def _voters(folder: Path) -> tuple[int, ...]:
    """Return the node ids of the newest voter set of a metadata log; empty if it is unknown.

    It is in records of the log and of its snapshots (KIP-853), otherwise in `quorum-state`.
    """
    voter_ids: list[int] = []

    def note(offset: int, voters: VoterSet) -> None:
        voter_ids[:] = voters.ids

    try:
        names = sorted(os.listdir(folder))
        snapshots = [name for name in map(parse_snapshot_file_name, names) if name is not None]
        if snapshots:
            path = folder / snapshot_file_name(max(snapshots))
            info = read_snapshot_info(path.read_bytes(), str(path))
            if info.voters is not None:
                note(0, info.voters)
        history = VoterHistory(VoterSet())
        for name in names:
            if name.endswith(LOG_SUFFIX):
                apply_to_history((folder / name).read_bytes(), history, note)
        if not voter_ids:
            path = folder / QUORUM_STATE
            voter_ids += decode_quorum_state(path.read_bytes(), str(path)).voter_ids
    except (CorruptLog, CorruptRecords, UnsupportedMetadata, OSError):
        return ()  # the audit of this log reports the damage
    return tuple(sorted(voter_ids))


def _placed(image: MetadataImage, topic: TopicImage) -> PlacedTopic:
    own = image.configs.topic(topic.name).get(_POLICY)
    policy = own or image.configs.default_broker().get(f"log.{_POLICY}")
    return PlacedTopic(
        topic.name,
        topic.topic_id,
        None if policy is None else "compact" in policy,
        {
            number: PlacedPartition(
                partition.replicas,
                partition.directories,
                partition.isr,
                partition.leader,
                partition.elr,
            )
            for number, partition in topic.partitions.items()
        },
    )
