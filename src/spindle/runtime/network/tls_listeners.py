"""The TLS of all servers of a node: read at the start, and again when keys or files change.

Kafka reads a changed file when a request sets its name again. Spindle also checks the files every
few seconds, so that a tool that renews certificates needs no client of the cluster.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from spindle.common.ids import Endpoint
from spindle.common.log_throttle import LogThrottle
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.node_config import NodeConfig
from spindle.metadata.configs import BROKER_RESOURCE
from spindle.publication.loader import Publication
from spindle.publication.publishers import MetadataPublisher
from spindle.runtime import background
from spindle.runtime.detached_threads import StoreReads
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.listener import ListenerSecurity

if TYPE_CHECKING:
    from spindle.runtime.network.listener_tls import ListenerTls
    from spindle.runtime.network.renewable_tls import RenewableTls

_PAUSE_S: Final = 5.0
_MAX_LATE_CHECKS: Final = 16


class TlsListeners(MetadataPublisher):
    """The listeners of a node that have TLS, and its metrics; often none.

    Args:
        wall_clock_ms: returns the time at which certificates must be valid.
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
        self._all: list[RenewableTls] = []
        # A request may name any path, so its reads must not delay those of the present stores.
        self._checks = StoreReads("the stores of listeners", max_late=_MAX_LATE_CHECKS)
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

        handshakes = Handshakes()
        failures = LogThrottle(lambda: int(self._loop.time() * 1000))
        for listener in listeners:
            tls = self.add(listener)
            self._listeners[listener] = ListenerTls(tls, handshakes, failures, self._metrics)

    def add(self, listener: str) -> "RenewableTls":
        """Read the stores of one more server, and watch them.

        Raises:
            ConfigError: the key is missing, or a store or a value cannot be used.
        """
        # Imported here, because nodes without TLS do not need it.
        from spindle.runtime.network.renewable_tls import RenewableTls

        tls = RenewableTls(self._config, listener, self._wall_clock_ms)
        self._all.append(tls)
        return tls

    def security_of(self, endpoint: Endpoint) -> ListenerSecurity:
        """Return how the connections of a listener are secured."""
        protocol = SecurityProtocol(endpoint.security_protocol)
        return ListenerSecurity(protocol, self._listeners.get(endpoint.listener))

    def start(self) -> None:
        """Begin to watch the files."""
        if self._all:
            self._looks = background.run_forever(
                self._look, "renewed certificates", delay_s=_PAUSE_S
            )

    async def stop(self) -> None:
        await background.end(self._looks, *self._renewals)

    async def check(self, dynamic: Mapping[str, str]) -> None:
        """Refuse dynamic values that a listener could not use.

        Raises:
            ConfigError: a store or a value cannot be used, or the new certificate is for another
                name, and `ssl.allow.*` does not allow that.
        """
        for tls in self._all:
            await tls.check(dynamic, self._checks)

    # -- changes

    def on_publication(self, publication: Publication) -> None:
        changed = publication.delta.configs.changed
        if not self._all or all(r.resource_type != BROKER_RESOURCE for r in changed):
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
        """Use changed keys and files; log once those that cannot be used.

        Args:
            may_rename: a new certificate may be for another name than the present one.
        """
        async with self._turn:
            for tls in self._all:
                await tls.renew(self._dynamic, may_rename=may_rename)
