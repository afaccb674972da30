"""The port through which replicas and handlers see the committed metadata image."""

from collections.abc import Callable
from typing import Protocol

from spindle.metadata.image import MetadataImage


class MetadataView(Protocol):
    """The committed image as this broker has it."""

    image: MetadataImage
    """The newest committed image."""

    @property
    def is_behind(self) -> bool:
        """Replicas of `image` are still being made or taken down."""
        ...

    def when_applied(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the replicas have followed another image."""
        ...

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call it any more."""
        ...

    async def catch_up(self, timeout_s: float) -> bool:
        """Return when the replicas are as `image` wants them; False if that takes longer."""
        ...

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Return when the replicas have followed such an image; False if that takes longer."""
        ...
