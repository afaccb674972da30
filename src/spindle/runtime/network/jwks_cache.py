"""The key sets of identity providers in memory, read again beside the event loop (KIP-768)."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from spindle.common.errors import ConfigError
from spindle.runtime import background
from spindle.runtime.backoff import Backoff
from spindle.runtime.detached_threads import on_own_thread
from spindle.security.server.key_set_source import KeySetSource, KeySetUnavailable, read_key_set
from spindle.security.server.oauthbearer import TokenRefused
from spindle.security.server.signing_keys import SigningKeys, UnknownKey

log = logging.getLogger(__name__)

MIN_PAUSE_S: Final = 10.0
"""Pause between two reads because of unknown keys: unauthenticated clients can send arbitrary key
ids."""


class KeySet:
    """The newest key set of one source.

    If the set cannot be read, the previous one stays. Until the first set is read, tokens are
    refused.

    Args:
        read: reads a key set on a thread.
        steady_s: a monotonic clock.
    """

    def __init__(
        self,
        source: KeySetSource,
        random: Callable[[], float],
        read: Callable[[KeySetSource], SigningKeys] = read_key_set,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._read = read
        self._steady_s = steady_s
        self._backoff = Backoff(source.retry_ms, source.max_retry_ms, random)
        self._keys: SigningKeys | None = None
        self._is_wanted = asyncio.Event()
        self._read_s = -MIN_PAUSE_S
        self._pause_ms: float = source.refresh_ms
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the set for the first time.

        If the server does not respond, try again later, so that a cluster can start without it.

        Raises:
            ConfigError: the set is a file that cannot be used.
        """
        try:
            await self._load()
        except KeySetUnavailable as error:
            if self._source.is_file:
                raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None
            self._failed(error)
        self._task = background.run_forever(self._turn, f"key set {self._source.url}")

    async def close(self) -> None:
        await background.end(self._task)

    def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token; if its key is unknown, read the set again.

        Raises:
            TokenRefused: the signature of the token cannot be verified, or is wrong.
        """
        if self._keys is None:
            raise TokenRefused(f"the key set of {self._source.url} could not be read yet")
        try:
            return self._keys.claims(token)
        except UnknownKey:
            if self._steady_s() - self._read_s >= MIN_PAUSE_S:
                self._is_wanted.set()
            raise

    async def _turn(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause_ms / 1000):
                await self._is_wanted.wait()
        try:
            await self._load()
        except (KeySetUnavailable, ConfigError) as error:
            self._failed(error)

    async def _load(self) -> None:
        self._is_wanted.clear()
        self._read_s = self._steady_s()
        self._keys = await on_own_thread(self._read, self._source)
        self._backoff.reset()
        self._pause_ms = self._source.refresh_ms
        log.info("read %d keys from %s", len(self._keys), self._source.url)

    def _failed(self, error: Exception) -> None:
        self._pause_ms = self._backoff.next_ms()
        kept = "no token is accepted" if self._keys is None else "the keys before stay in use"
        log.warning("%s; %s, the next attempt is in %.0f ms", error, kept, self._pause_ms)


class KeySets:
    """The key sets of a node, one for each source."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._sets: dict[KeySetSource, KeySet] = {}

    def of(self, source: KeySetSource) -> KeySet:
        """Return the key set of a source, not read yet; see `start`."""
        if source not in self._sets:
            self._sets[source] = KeySet(source, self._random)
        return self._sets[source]

    async def start(self) -> None:
        """Read all sets.

        Raises:
            ConfigError: a set is a file that cannot be used.
        """
        for opened in self._sets.values():
            await opened.start()

    async def close(self) -> None:
        for opened in self._sets.values():
            await opened.close()
