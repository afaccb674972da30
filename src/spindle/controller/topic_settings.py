"""The two topic configurations that decide elections: min.insync.replicas and unclean election."""

from typing import Final

from spindle.controller.decision import ControllerSettings
from spindle.metadata.image import MetadataImage
from spindle.metadata.topics import TopicImage

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"


def min_insync_replicas(image: MetadataImage, settings: ControllerSettings, topic: str) -> int:
    """Return a topic's value: its own, else the cluster's dynamic one, else this controller's."""
    for values in (
        image.configs.topic(topic),
        image.configs.broker(settings.node_id),
        image.configs.default_broker(),
    ):
        if MIN_INSYNC_REPLICAS in values:
            return int(values[MIN_INSYNC_REPLICAS])
    return settings.min_insync_replicas


def effective_min_isr(image: MetadataImage, settings: ControllerSettings, topic: TopicImage) -> int:
    """Return how many in-sync replicas the ELR asks for; at most those of partition 0 (KIP-966)."""
    first = topic.partitions.get(0)
    wanted = min_insync_replicas(image, settings, topic.name)
    return wanted if first is None else min(wanted, len(first.replicas))


def is_unclean_election_enabled(
    image: MetadataImage, settings: ControllerSettings, topic: str
) -> bool:
    """Return whether an unclean election may happen by itself in this topic."""
    for values in (
        image.configs.topic(topic),
        image.configs.broker(settings.node_id),
        image.configs.default_broker(),
    ):
        if UNCLEAN_LEADER_ELECTION in values:
            return values[UNCLEAN_LEADER_ELECTION].strip().lower() == "true"
    return settings.unclean_leader_election_enable
