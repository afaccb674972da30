"""The port through which replicas and handlers see the committed metadata."""

from collections.abc import Callable
from typing import Protocol

from spindle.common.uuids import Uuid
from spindle.metadata.image import MetadataImage


class MetadataView(Protocol):
    """The committed image, and whether this broker's replicas have applied it."""

    image: MetadataImage
    """The newest committed image."""

    @property
    def is_behind(self) -> bool:
        """Return True while replicas are still being created, led or deleted to match `image`."""
        ...

    def is_created_since_stop(self, topic_id: Uuid) -> bool:
        """Return True if a topic was certainly created after this broker had stopped.

        False if it is unknown. The broker never had records of such a topic.
        """
        ...

    def when_applied(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the replicas have applied the next image."""
        ...

    def forget(self, callback: Callable[[], None]) -> None:
        """Cancel `when_applied` for `callback`."""
        ...

    async def catch_up(self, timeout_s: float) -> bool:
        """Wait until the replicas have applied `image`; return False after the timeout."""
        ...

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Wait until the replicas have applied an image that fulfils the predicate.

        Returns:
            False after the timeout.
        """
        ...
