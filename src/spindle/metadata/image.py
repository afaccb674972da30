"""The metadata image: the state of the cluster at one offset of the metadata log (KIP-801).

An image never changes. Controllers (active and standby) and brokers make the next image with a
`MetadataDelta`, which replays records and is then applied.
"""

from spindle.metadata.client_quotas import EMPTY_CLIENT_QUOTAS, ClientQuotasImage
from spindle.metadata.cluster import EMPTY_CLUSTER, ClusterImage
from spindle.metadata.configs import EMPTY_CONFIGS, ConfigsImage
from spindle.metadata.feature_image import EMPTY_FEATURES, FeaturesImage
from spindle.metadata.immutable import immutable
from spindle.metadata.security import EMPTY_SECURITY, SecurityImage
from spindle.metadata.topics import EMPTY_TOPICS, TopicsImage


@immutable
class MetadataProvenance:
    """The last record that an image contains: its offset, epoch and append time."""

    last_offset: int
    last_epoch: int
    last_append_time_ms: int
    is_batch_aligned: bool = True


@immutable
class ProducerIdsImage:
    """`next_producer_id` is the first id that no block has claimed; -1 before the first block."""

    next_producer_id: int = -1
    broker_id: int = -1
    broker_epoch: int = -1


@immutable
class MetadataImage:
    """All of the cluster's metadata at `provenance`."""

    provenance: MetadataProvenance
    features: FeaturesImage
    cluster: ClusterImage
    topics: TopicsImage
    configs: ConfigsImage
    client_quotas: ClientQuotasImage
    producer_ids: ProducerIdsImage
    security: SecurityImage

    @property
    def metadata_version(self) -> int:
        return self.features.metadata_version

    def check(self) -> None:
        """Assert the invariants of the parts."""
        self.topics.check()


EMPTY_IMAGE = MetadataImage(
    provenance=MetadataProvenance(-1, -1, -1),
    features=EMPTY_FEATURES,
    cluster=EMPTY_CLUSTER,
    topics=EMPTY_TOPICS,
    configs=EMPTY_CONFIGS,
    client_quotas=EMPTY_CLIENT_QUOTAS,
    producer_ids=ProducerIdsImage(),
    security=EMPTY_SECURITY,
)
