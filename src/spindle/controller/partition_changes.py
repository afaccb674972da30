"""Creates `PartitionChangeBuilder`s, with the settings of each topic looked up once."""

from collections.abc import Callable

from spindle.common.uuids import ZERO_UUID
from spindle.controller.decision import ControllerSettings
from spindle.controller.partition_change_builder import Election, PartitionChangeBuilder
from spindle.controller.topic_settings import effective_min_isr, is_unclean_election_enabled
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage


class PartitionChanges:
    """Creates changes that are all based on one image.

    Args:
        is_active: returns whether a broker may lead; by default as in the image.
    """

    def __init__(
        self,
        image: MetadataImage,
        settings: ControllerSettings,
        is_active: Callable[[int], bool] | None = None,
    ) -> None:
        self._image = image
        self._settings = settings
        self._is_active = is_active or image.cluster.is_active
        self._topic_id = ZERO_UUID
        self._min_isr = 0
        self._policy = Election.ONLINE

    def of(
        self, topic: TopicImage, partition_id: int, partition: PartitionRegistration
    ) -> PartitionChangeBuilder:
        """Return a change that only replaces a leader that cannot lead."""
        if topic.topic_id != self._topic_id:
            self._look_up(topic)
        return PartitionChangeBuilder(
            self._image,
            topic.topic_id,
            partition_id,
            partition,
            is_active=self._is_active,
            min_isr=self._min_isr,
        )

    def by_policy(
        self, topic: TopicImage, partition_id: int, partition: PartitionRegistration
    ) -> PartitionChangeBuilder:
        """Return a change whose election may be unclean, if the topic's configuration allows it."""
        change = self.of(topic, partition_id, partition)
        change.election = self._policy
        return change

    def _look_up(self, topic: TopicImage) -> None:
        self._topic_id = topic.topic_id
        self._min_isr = effective_min_isr(self._image, self._settings, topic)
        is_unclean = is_unclean_election_enabled(self._image, self._settings, topic.name)
        self._policy = Election.UNCLEAN if is_unclean else Election.ONLINE
