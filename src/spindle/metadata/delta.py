"""A delta: the changes between two images, built by replaying records.

`apply()` returns the next image. Publishers read from the delta what changed (topics created,
changed and deleted, brokers, configurations). A snapshot is a delta as well: `begin_snapshot()`
clears everything, the snapshot's records set it again, and an equal value is no change.
"""

from collections.abc import Callable
from typing import Any, Final

from spindle.common.errors import ProtocolViolation
from spindle.metadata.client_quotas import ClientQuotasDelta
from spindle.metadata.cluster import ClusterDelta
from spindle.metadata.configs import ConfigsDelta
from spindle.metadata.feature_image import FeaturesDelta
from spindle.metadata.image import MetadataImage, MetadataProvenance, ProducerIdsImage
from spindle.metadata.security import SecurityDelta
from spindle.metadata.topics import TopicsDelta
from spindle.protocol.message import Message
from spindle.protocol.messages import metadata_records as records


class MetadataDelta:
    """Accumulates records on top of `base`. Used once: replay, read, apply."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.features = FeaturesDelta(base.features)
        self.cluster = ClusterDelta(base.cluster)
        self.topics = TopicsDelta(base.topics)
        self.configs = ConfigsDelta(base.configs)
        self.client_quotas = ClientQuotasDelta(base.client_quotas)
        self.producer_ids = base.producer_ids
        self.security = SecurityDelta(base.security)

    def begin_snapshot(self) -> None:
        """Forget the base: the records that follow are a whole snapshot."""
        self.features.clear()
        self.cluster.clear()
        self.topics.clear()
        self.configs.clear()
        self.client_quotas.clear()
        self.producer_ids = ProducerIdsImage()
        self.security.clear()

    def replay(self, record: Message, offset: int) -> None:
        """Apply one record that stands at `offset`.

        Raises:
            ProtocolViolation: the record contradicts the state, or cannot stand here.
        """
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise ProtocolViolation(
                f"{type(record).__name__} at offset {offset} cannot be replayed"
            )
        replay(self, record, offset)

    def apply(self, provenance: MetadataProvenance) -> MetadataImage:
        """Return the image after the records."""
        return MetadataImage(
            provenance=provenance,
            features=self.features.apply(),
            cluster=self.cluster.apply(),
            topics=self.topics.apply(),
            configs=self.configs.apply(),
            client_quotas=self.client_quotas.apply(),
            producer_ids=self.producer_ids,
            security=self.security.apply(),
        )

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        topic = self.topics.replay_remove_topic(record)
        self.configs.forget_topics((topic.name,))

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self.producer_ids = ProducerIdsImage(
            record.next_producer_id, record.broker_id, record.broker_epoch
        )


def _ignore(delta: MetadataDelta, record: Message, offset: int) -> None:
    """Ignore the record: NoOpRecord has no content, and no cluster migrates from ZooKeeper."""


_REPLAY: Final[dict[type[Message], Callable[[MetadataDelta, Any, int], None]]] = {
    records.PartitionRecord: lambda d, r, _: d.topics.replay_partition(r),
    records.PartitionChangeRecord: lambda d, r, _: d.topics.replay_partition_change(r),
    records.TopicRecord: lambda d, r, _: d.topics.replay_topic(r),
    records.RemoveTopicRecord: lambda d, r, _: d._remove_topic(r),
    records.ClearElrRecord: lambda d, r, _: d.topics.replay_clear_elr(r),
    records.ConfigRecord: lambda d, r, _: d.configs.replay(r),
    records.RegisterBrokerRecord: lambda d, r, offset: d.cluster.replay_register(r, offset),
    records.UnregisterBrokerRecord: lambda d, r, _: d.cluster.replay_unregister(r),
    records.FenceBrokerRecord: lambda d, r, _: d.cluster.replay_fence(r),
    records.UnfenceBrokerRecord: lambda d, r, _: d.cluster.replay_unfence(r),
    records.BrokerRegistrationChangeRecord: lambda d, r, _: d.cluster.replay_change(r),
    records.RegisterControllerRecord: lambda d, r, _: d.cluster.replay_register_controller(r),
    records.UnregisterControllerRecord: lambda d, r, _: d.cluster.replay_unregister_controller(r),
    records.FeatureLevelRecord: lambda d, r, _: d.features.replay(r),
    records.ClientQuotaRecord: lambda d, r, _: d.client_quotas.replay(r),
    records.ProducerIdsRecord: lambda d, r, _: d._producer_ids(r),
    records.AccessControlEntryRecord: lambda d, r, _: d.security.replay_acl(r),
    records.RemoveAccessControlEntryRecord: lambda d, r, _: d.security.replay_remove_acl(r),
    records.UserScramCredentialRecord: lambda d, r, _: d.security.replay_scram(r),
    records.RemoveUserScramCredentialRecord: lambda d, r, _: d.security.replay_remove_scram(r),
    records.DelegationTokenRecord: lambda d, r, _: d.security.replay_token(r),
    records.RemoveDelegationTokenRecord: lambda d, r, _: d.security.replay_remove_token(r),
    records.NoOpRecord: _ignore,
    records.ZkMigrationStateRecord: _ignore,
}
