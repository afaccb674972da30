"""The TLS of one server: read at the start, and again when its keys or its files change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.node_config import NodeConfig
from spindle.runtime.detached_threads import StoreReads
from spindle.runtime.network.tls_source import LoadedTls, TlsSource, tls_source

log = logging.getLogger(__name__)

_RETRY_S: Final = 60.0
"""Pause before a refused source is tried again: its files may be readable by then."""


class RenewableTls:
    """TLS of a listener, or of the metrics.

    Args:
        listener: the name for which its keys are configured.
        wall_clock_ms: returns the time at which certificates must be valid.

    Attributes:
        loaded: keys and settings of new connections.
        on_renewed: called with the keys and settings of new connections.

    Raises:
        ConfigError: the key is missing, or a store or a value cannot be used.
    """

    def __init__(self, config: NodeConfig, listener: str, wall_clock_ms: Callable[[], int]) -> None:
        self.listener: Final = listener
        self.on_renewed: Callable[[LoadedTls], Awaitable[None]] | None = None
        self._config = config
        self._wall_clock_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._reads = StoreReads(f"listener {listener}: its key store and trust store")
        self._refused: TlsSource | None = None
        self._retry_s = 0.0
        self._trouble = ""
        self.loaded = self._reads.read_blocking(self._load_first)
        self._warn_of_dates()

    def _load_first(self) -> LoadedTls:
        return tls_source(self._config, self.listener).load()

    async def check(self, dynamic: Mapping[str, str], reads: StoreReads) -> None:
        """Refuse dynamic values that the server could not use.

        Args:
            reads: the reads of stores, which may hang, because a request may name any path.

        Raises:
            ConfigError: a store or a value cannot be used, or the new certificate is for another
                name, and `ssl.allow.*` does not allow that.
        """
        source = await reads.read(tls_source, self._config, self.listener, dynamic)
        if source != self.loaded.source:
            loaded = await reads.read(source.load)
            await reads.read(loaded.check_follows, self.loaded)

    async def renew(self, dynamic: Mapping[str, str], *, may_rename: bool) -> None:
        """Use changed keys and files; log once those that cannot be used.

        Args:
            may_rename: a new certificate may be for another name than the present one.
        """
        try:
            await self._renew(dynamic, may_rename=may_rename)
        except ConfigError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error(
                    "the new key or certificates are not used, the present ones stay: %s", error
                )

    async def _renew(self, dynamic: Mapping[str, str], *, may_rename: bool) -> None:
        source = await self._reads.read(tls_source, self._config, self.listener, dynamic)
        if source != self.loaded.source:
            if source == self._refused and self._loop.time() < self._retry_s:
                return
            self._refused, self._retry_s = source, self._loop.time() + _RETRY_S
            loaded = await self._reads.read(source.load)
            if not may_rename:
                await self._reads.read(loaded.check_follows, self.loaded)
            await self._use(loaded)
        self._refused, self._trouble = None, ""

    async def _use(self, loaded: LoadedTls) -> None:
        if self.on_renewed is not None:
            await self.on_renewed(loaded)
        self.loaded = loaded
        certificate = loaded.key.certificate
        log.info(
            "listener %s: new connections use the certificate of %s, valid until %s",
            self.listener,
            certificate.subject,
            certificate.not_after.isoformat(),
        )
        self._warn_of_dates()

    def _warn_of_dates(self) -> None:
        now = datetime.fromtimestamp(self._wall_clock_ms() / 1000, UTC)
        warning = self.loaded.date_warning(now)
        if warning is not None:
            log.warning(warning)
