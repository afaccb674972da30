"""Topics of Metadata responses, encoded once for each version of the metadata.

Every client of a cluster asks for the same topics, and most of them stay the same for a long time.
The bytes of a topic depend on the topic, the registered brokers, the listener and the version of
the request, so they are kept until one of these changes. They are encoded with pauses, in which
the event loop serves others.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spindle.common.uuids import Uuid
from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.image import MetadataImage
from spindle.metadata.topics import TopicImage
from spindle.protocol.codec import EncodedStructs, encode_struct
from spindle.protocol.messages.metadata import MetadataResponse
from spindle.serving.cooperative import cooperatively

_MAX_VIEWS: Final = 4
"""Pairs of listener and request version whose topics are kept."""
_MAX_BYTES: Final = 1 << 23
"""If the topics of one pair take more than this, they are dropped."""

Topic = MetadataResponse.MetadataResponseTopic


@dataclass
class _View:
    """The topics as clients of one listener and version see them, until `brokers` change.

    Maps of an image are compared by identity: an image shares them with the one before, unless
    something in them has changed.
    """

    brokers: Mapping[int, BrokerRegistration]
    topics: dict[Uuid, tuple[TopicImage, bytes]] = field(default_factory=dict)
    size_bytes: int = 0
    """Of all `topics`: clients with different permissions may see more together than each alone."""
    all_topics: tuple[Mapping[Uuid, TopicImage], bytes] | None = None

    def keep(self, topic: TopicImage, part: bytes) -> None:
        self.drop(topic.topic_id)
        self.topics[topic.topic_id] = topic, part
        self.size_bytes += len(part)

    def drop(self, topic_id: Uuid) -> None:
        _, part = self.topics.pop(topic_id, (None, b""))
        self.size_bytes -= len(part)

    def drop_deleted(self, by_id: Mapping[Uuid, TopicImage]) -> None:
        """Drop topics that are deleted, so that there are at most as many as in an image."""
        if len(self.topics) > len(by_id):
            for topic_id in self.topics.keys() - by_id.keys():
                self.drop(topic_id)


class EncodedTopics:
    """Keeps encoded topics from one Metadata request to the next; for one event loop."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[str, int], _View] = OrderedDict()

    async def encoded(
        self,
        image: MetadataImage,
        listener: str,
        version: int,
        topics: Sequence[TopicImage],
        topic_response: Callable[[TopicImage], Topic],
    ) -> EncodedStructs[Topic]:
        """Return these topics of the image in order, encoded for a Metadata response.

        Args:
            topics: those that the sender may see.
            topic_response: makes the topic's part of a response of this listener and version.
        """
        view = self._view(image.cluster.brokers, listener, version)
        by_id = image.topics.by_id
        has_all = len(topics) == len(by_id)
        if has_all and view.all_topics is not None and view.all_topics[0] is by_id:
            data = view.all_topics[1]
        else:
            parts = []
            async for topic in cooperatively(topics):
                kept = view.topics.get(topic.topic_id)
                if kept is not None and kept[0] is topic:
                    parts.append(kept[1])
                else:
                    part = encode_struct(topic_response(topic), MetadataResponse, version)
                    view.keep(topic, part)
                    parts.append(part)
            data = b"".join(parts)
            if has_all:
                view.all_topics = by_id, data
            view.drop_deleted(by_id)
            too_large = max(view.size_bytes, len(data)) > _MAX_BYTES
            if too_large and self._views.get((listener, version)) is view:
                del self._views[listener, version]
        return EncodedStructs(Topic, MetadataResponse, version, len(topics), data)

    def _view(
        self, brokers: Mapping[int, BrokerRegistration], listener: str, version: int
    ) -> _View:
        key = listener, version
        view = self._views.get(key)
        if view is None or view.brokers is not brokers:
            view = self._views[key] = _View(brokers)
        self._views.move_to_end(key)
        if len(self._views) > _MAX_VIEWS:
            self._views.popitem(last=False)
        return view
