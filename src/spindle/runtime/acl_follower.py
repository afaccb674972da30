"""The authorizer of a node, and how it follows the ACLs of the metadata (KIP-801)."""

import asyncio
import logging
from collections.abc import Callable

from spindle.authorization.authorizer import Authorizer, NoAuthorizer
from spindle.authorization.denials import Denials
from spindle.authorization.standard import StandardAuthorizer
from spindle.config.authorizer import authorizer_settings
from spindle.config.node_config import NodeConfig
from spindle.publication.loader import Publication
from spindle.publication.publishers import MetadataPublisher

log = logging.getLogger(__name__)


def make_authorizer(config: NodeConfig, steady_ms: Callable[[], int]) -> Authorizer:
    """Return the configured authorizer of a node, still without ACLs.

    Raises:
        ConfigError: the configuration names another authorizer than Kafka's standard one.
    """
    settings = authorizer_settings(config)
    if settings is None:
        return NoAuthorizer()
    return StandardAuthorizer(
        settings.super_users, Denials(steady_ms), allow_everyone=settings.allow_everyone
    )


class AclFollower(MetadataPublisher):
    """Gives each change of the ACLs to the authorizer.

    Args:
        high_watermark: the committed end of the metadata log. When the ACLs up to this offset are
            loaded, the authorizer decides.

    Attributes:
        is_loaded: set when the authorizer decides; at once without an authorizer.
    """

    def __init__(self, authorizer: Authorizer, high_watermark: Callable[[], int | None]) -> None:
        self._standard = authorizer if isinstance(authorizer, StandardAuthorizer) else None
        self._high_watermark = high_watermark
        self.is_loaded = asyncio.Event()
        if self._standard is None:
            self.is_loaded.set()

    def on_publication(self, publication: Publication) -> None:
        if self._standard is None:
            return
        if publication.is_snapshot:
            self._standard.load(publication.image.security.acls)
        elif publication.delta.security.changed_acls:
            self._standard.update(publication.delta.security.changed_acls)

    def on_committed(self, last_offset: int) -> None:
        if not self.is_loaded.is_set() and last_offset + 1 >= (self._high_watermark() or 0):
            assert self._standard is not None
            self._standard.complete_load()
            self.is_loaded.set()
            log.info("the ACLs are loaded: %d", self._standard.acl_count)
