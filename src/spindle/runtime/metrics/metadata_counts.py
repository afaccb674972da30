"""Counts of the committed metadata, updated with each delta instead of counted again.

A scrape of a cluster with many partitions must not delay its controller.
"""

from spindle.common.ids import NO_LEADER
from spindle.metadata.partitions import RECOVERING, PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.publication.loader import Publication
from spindle.publication.publishers import MetadataPublisher
from spindle.raft.ready import LeaderAndEpoch


class MetadataCounts(MetadataPublisher):
    """Counts since the start of the node.

    Attributes:
        partitions: partitions of all topics.
        offline: partitions without a leader.
        not_preferred: partitions whose leader is not the preferred replica.
        unclean_elections: elections of leaders that were not in sync.
        elr_elections: elections of eligible leader replicas (KIP-966).
        snapshots_loaded: images that came from a snapshot.
        leaders_seen: leaders of the metadata quorum that were elected.
        controller_id: the active controller as far as this node knows, -1 for none.
    """

    def __init__(self) -> None:
        self.partitions = 0
        self.offline = 0
        self.not_preferred = 0
        self.unclean_elections = 0
        self.elr_elections = 0
        self.snapshots_loaded = 0
        self.leaders_seen = 0
        self.controller_id = NO_LEADER

    def on_publication(self, publication: Publication) -> None:
        topics = publication.delta.topics
        self.snapshots_loaded += publication.is_snapshot
        for deleted in topics.deleted.values():
            self._count(deleted, -1)
        for topic_id, topic in topics.changed.items():
            # A snapshot contains all topics: a topic that it repeats was neither deleted nor
            # created.
            self._count(publication.image.topics.by_id[topic_id], 1)
            if topic.base is not None:
                self._count(topic.base, -1)
                for _, old, new in topic.changed_partitions():
                    if old is not None:
                        self._elected(old, new)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders_seen += leader.leader_id != NO_LEADER
        self.controller_id = leader.leader_id

    def _count(self, topic: TopicImage, sign: int) -> None:
        self.partitions += sign * len(topic.partitions)
        self.offline += sign * topic.counts.leaderless
        self.not_preferred += sign * topic.counts.not_preferred

    def _elected(self, old: PartitionRegistration, new: PartitionRegistration) -> None:
        if new.leader not in (old.leader, NO_LEADER) and new.leader not in old.isr:
            self.elr_elections += new.leader in old.elr
            self.unclean_elections += is_unclean_election(old, new)


def is_unclean_election(old: PartitionRegistration, new: PartitionRegistration) -> bool:
    """Return True if the new leader may lack committed records."""
    return (
        new.leader not in (old.leader, NO_LEADER, *old.isr, *old.elr)
        and new.leader_recovery_state == RECOVERING
    )
