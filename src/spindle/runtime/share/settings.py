"""The settings of share groups for the leaders of partitions, and where their values come from."""

from collections.abc import Callable
from typing import Final, NamedTuple

from spindle.config.node_config import NodeConfig
from spindle.coordinator.share.dead_letters import DeadLetterConfig
from spindle.coordinator.share.share_partition import DeliverySettings
from spindle.metadata.configs import GROUP_RESOURCE, ConfigResource
from spindle.metadata.features import SHARE_VERSION
from spindle.replicas.metadata_view import MetadataView

_DEAD_LETTERS_LEVEL: Final = 2
"""The `share.version` from which groups may have dead-letter topics (KIP-1191)."""


class ShareDeliveryConfig(NamedTuple):
    """The settings of one share group that leaders of partitions use."""

    delivery: DeliverySettings
    auto_offset_reset: str = "latest"
    """`share.auto.offset.reset`: `latest`, `earliest` or `by_duration:` and an ISO duration."""
    is_read_committed: bool = False
    """`share.isolation.level`."""
    dead_letters: DeadLetterConfig | None = None
    """None if the group has no dead-letter topic."""


class _Limited(NamedTuple):
    """A value of the broker for groups without their own, and the limits for those."""

    default: int
    low: int
    high: int

    def of(self, text: str | None) -> int:
        """Return the value of a group."""
        return self.default if text is None else min(max(int(text), self.low), self.high)


def delivery_config_of(
    node: NodeConfig, metadata: MetadataView
) -> Callable[[str], ShareDeliveryConfig]:
    """Return the function from a group to its present settings.

    A value of the group that is outside of the broker's limits by now counts as the limit.
    """
    integer = node.integer
    lock_duration = _Limited(
        integer("group.share.record.lock.duration.ms"),
        integer("group.share.min.record.lock.duration.ms"),
        integer("group.share.max.record.lock.duration.ms"),
    )
    delivery_count = _Limited(
        integer("group.share.delivery.count.limit"),
        integer("group.share.min.delivery.count.limit"),
        integer("group.share.max.delivery.count.limit"),
    )
    record_locks = _Limited(
        integer("group.share.partition.max.record.locks"),
        integer("group.share.min.partition.max.record.locks"),
        integer("group.share.max.partition.max.record.locks"),
    )

    def config_of(group_id: str) -> ShareDeliveryConfig:
        image = metadata.image
        own = image.configs.of(ConfigResource(GROUP_RESOURCE, group_id)).get
        dead_letters = None
        topic = own("errors.deadletterqueue.topic.name", "")
        if topic and image.features.levels.get(SHARE_VERSION, 0) >= _DEAD_LETTERS_LEVEL:
            copies = own("errors.deadletterqueue.copy.record.enable", "false").lower() == "true"
            dead_letters = DeadLetterConfig(topic, copies)
        return ShareDeliveryConfig(
            DeliverySettings(
                lock_duration.of(own("share.record.lock.duration.ms")),
                delivery_count.of(own("share.delivery.count.limit")),
                record_locks.of(own("share.partition.max.record.locks")),
                own("share.renew.acknowledge.enable", "true").lower() == "true",
                dead_letters is not None,
            ),
            own("share.auto.offset.reset", "latest"),
            own("share.isolation.level", "read_uncommitted").lower() == "read_committed",
            dead_letters,
        )

    return config_of
