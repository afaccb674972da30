"""The port through which replicas and handlers see the committed metadata."""

from collections.abc import Callable
from typing import Protocol

from spindle.metadata.image import MetadataImage


class MetadataView(Protocol):
    """The committed image, and how far this broker's replicas have followed it."""

    image: MetadataImage
    """The newest committed image."""

    @property
    def is_behind(self) -> bool:
        """Return True while replicas are created, led or deleted as `image` demands."""
        ...

    def when_applied(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the replicas have followed the next image."""
        ...

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call `callback` any more."""
        ...

    async def catch_up(self, timeout_s: float) -> bool:
        """Wait until the replicas have followed `image`; return False after the timeout."""
        ...

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Wait until the replicas have followed an image that fulfils the predicate.

        Returns:
            False after the timeout.
        """
        ...
