"""The TLS of all listeners of a node: read at the start, and again when keys or files change.

Kafka reads a changed file when a request sets its name again. Here, files are also looked at every
few seconds, so that a tool that renews certificates needs no client of the cluster.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spindle.common.errors import ConfigError
from spindle.common.ids import Endpoint
from spindle.common.security_protocol import SecurityProtocol
from spindle.common.seldom import Seldom
from spindle.config.node_config import NodeConfig
from spindle.metadata.configs import BROKER_RESOURCE
from spindle.publication.image_publisher import ImageConsumer
from spindle.publication.loader import Publication
from spindle.runtime import background
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.listener import ListenerSecurity
from spindle.runtime.own_threads import StoreReads

if TYPE_CHECKING:
    from spindle.runtime.network.listener_tls import ListenerTls
    from spindle.runtime.network.tls_source import LoadedTls, TlsSource

log = logging.getLogger(__name__)

_PAUSE_S: Final = 5.0
_RETRY_S: Final = 60.0
"""Pause until a source that was refused is tried again: its files may be readable by then."""
_STORES: Final = "listener {}: its key store and trust store"
_MOST_LATE_CHECKS: Final = 16


class TlsListeners(ImageConsumer):
    """The listeners of a node that have TLS; often none.

    Args:
        wall_clock_ms: tells whether certificates are valid.
        metrics: count failed handshakes.

    Raises:
        ConfigError: a listener lacks its key, or a store or a value cannot be used.
    """

    def __init__(
        self, config: NodeConfig, wall_clock_ms: Callable[[], int], metrics: RequestMetrics
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._wall_clock_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._dynamic: Mapping[str, str] = {}
        self._refused: dict[str, tuple[TlsSource, float]] = {}
        """By listener, with the time of the next attempt."""
        self._troubles: dict[str, str] = {}
        self._reads: dict[str, StoreReads] = {}
        # A request may name any path, so its reads do not hold up those of the present stores.
        self._checks = StoreReads("the stores of listeners", most_late=_MOST_LATE_CHECKS)
        self._turn = asyncio.Lock()
        self._looks: asyncio.Task[None] | None = None
        self._renewals: set[asyncio.Task[None]] = set()
        self._listeners: dict[str, ListenerTls] = {}
        secured = [e for e in config.listeners if SecurityProtocol(e.security_protocol).has_tls]
        if secured:
            self._load_all([endpoint.listener for endpoint in secured])

    def _load_all(self, listeners: Sequence[str]) -> None:
        # Imported here, because nodes without TLS do not need it.
        from spindle.runtime.handshakes import Handshakes
        from spindle.runtime.network.listener_tls import ListenerTls
        from spindle.runtime.network.tls_source import tls_source

        handshakes = Handshakes()
        failures = Seldom(lambda: int(self._loop.time() * 1000))
        for listener in listeners:
            reads = self._reads[listener] = StoreReads(_STORES.format(listener))
            loaded = reads.read_blocking(
                lambda name: tls_source(self._config, name).load(), listener
            )
            self._listeners[listener] = ListenerTls(loaded, handshakes, failures, self._metrics)
            self._warn_of_dates(loaded)

    def security_of(self, endpoint: Endpoint) -> ListenerSecurity:
        """Return how the connections of a listener are secured."""
        protocol = SecurityProtocol(endpoint.security_protocol)
        return ListenerSecurity(protocol, self._listeners.get(endpoint.listener))

    def start(self) -> None:
        """Begin to look at the files."""
        if self._listeners:
            self._looks = background.run_forever(
                self._look, "renewed certificates", delay_s=_PAUSE_S
            )

    async def stop(self) -> None:
        await background.end(self._looks, *self._renewals)

    async def check(self, dynamic: Mapping[str, str]) -> None:
        """Refuse dynamic values with which a listener could not go on.

        Raises:
            ConfigError: a store or a value cannot be used, or the new certificate is for another
                name, and `ssl.allow.*` does not allow that.
        """
        for listener, tls in self._listeners.items():
            source = await self._source(self._checks, listener, dynamic)
            if source != tls.loaded.source:
                loaded = await self._checks.read(source.load)
                await self._checks.read(loaded.check_follows, tls.loaded)

    # -- changes

    def on_publication(self, publication: Publication) -> None:
        changed = publication.delta.configs.changed
        if not self._listeners or all(r.resource_type != BROKER_RESOURCE for r in changed):
            return
        self._dynamic = publication.image.configs.dynamic_values(self._config.node_id)
        # Names were compared when the change was requested.
        renewal = background.run_once(self.renew(may_rename=True), "changed certificates")
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)

    async def _look(self) -> None:
        await self.renew(may_rename=False)
        await asyncio.sleep(_PAUSE_S)

    async def renew(self, *, may_rename: bool) -> None:
        """Take into use what has changed; what cannot be used is logged once.

        Args:
            may_rename: a new certificate may be for another name than the present one.
        """
        async with self._turn:
            for listener, tls in self._listeners.items():
                try:
                    await self._renew(listener, tls, may_rename=may_rename)
                except ConfigError as error:
                    self._tell(listener, str(error))

    async def _renew(self, listener: str, tls: "ListenerTls", *, may_rename: bool) -> None:
        reads = self._reads[listener]
        source = await self._source(reads, listener, self._dynamic)
        if source == tls.loaded.source:
            self._forget_refusal(listener)
        elif self._is_due(listener, source):
            self._refused[listener] = source, self._loop.time() + _RETRY_S
            loaded = await reads.read(source.load)
            if not may_rename:
                await reads.read(loaded.check_follows, tls.loaded)
            self._forget_refusal(listener)
            self._use(tls, loaded)

    def _is_due(self, listener: str, source: "TlsSource") -> bool:
        refused, retry_s = self._refused.get(listener, (None, 0.0))
        return source != refused or self._loop.time() >= retry_s

    def _forget_refusal(self, listener: str) -> None:
        self._refused.pop(listener, None)
        self._troubles.pop(listener, None)

    def _tell(self, listener: str, trouble: str) -> None:
        if self._troubles.get(listener) != trouble:
            self._troubles[listener] = trouble
            log.error(
                "the new key or certificates are not used, the present ones stay: %s", trouble
            )

    async def _source(
        self, reads: StoreReads, listener: str, dynamic: Mapping[str, str]
    ) -> "TlsSource":
        from spindle.runtime.network.tls_source import tls_source

        return await reads.read(tls_source, self._config, listener, dynamic)

    def _use(self, tls: "ListenerTls", loaded: "LoadedTls") -> None:
        tls.loaded = loaded
        certificate = loaded.key.certificate
        log.info(
            "listener %s: new connections use the certificate of %s, valid until %s",
            tls.listener,
            certificate.subject,
            certificate.not_after.isoformat(),
        )
        self._warn_of_dates(loaded)

    def _warn_of_dates(self, loaded: "LoadedTls") -> None:
        warning = loaded.date_warning(datetime.fromtimestamp(self._wall_clock_ms() / 1000, UTC))
        if warning is not None:
            log.warning(warning)
