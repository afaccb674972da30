"""Cordons log directories that are nearly full, and removes these cordons when space is free
again."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from spindle.common.text import size_text
from spindle.config.broker_keys.spindle import CORDON_HIGH_WATERMARK, CORDON_LOW_WATERMARK
from spindle.config.broker_values import BrokerValues
from spindle.disks.fill_watermarks import Space, Watermarks, nearly_full, used_share
from spindle.runtime import background

log = logging.getLogger(__name__)

CHECK_S: Final = 5.0
"""Pause between two checks of the free space."""


class DiskWatermarks:
    """Watches the space of a broker's log directories, if the high watermark is below 1.

    Args:
        ask: returns total and usable bytes of the directories that are online, by path.
        cordon: gets the paths of those that are nearly full; returns whether cordons have an
            effect at the cluster's metadata.version.
    """

    def __init__(
        self,
        values: BrokerValues,
        ask: Callable[[], Awaitable[Mapping[str, Space]]],
        cordon: Callable[[Sequence[str]], bool],
    ) -> None:
        self._ask = ask
        self._cordon = cordon
        self._full: tuple[str, ...] = ()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.update(values)

    def update(self, values: BrokerValues) -> None:
        """Use the watermarks of these values from now on."""
        self._watermarks = Watermarks(
            values.decimal(CORDON_HIGH_WATERMARK), values.decimal(CORDON_LOW_WATERMARK)
        )
        if self._is_on and self._watermarks.low >= self._watermarks.high:
            log.warning(
                "%s=%g is not less than %s=%g: nothing keeps a cordon for space from flapping",
                CORDON_LOW_WATERMARK,
                self._watermarks.low,
                CORDON_HIGH_WATERMARK,
                self._watermarks.high,
            )
        self._wake.set()

    def start(self) -> None:
        self._task = background.run_forever(self._turn, "space of log directories")

    async def stop(self) -> None:
        await background.end(self._task)

    async def _turn(self) -> None:
        self._wake.clear()
        await self.check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_S if self._is_on else None):
                await self._wake.wait()

    @property
    def _is_on(self) -> bool:
        return self._watermarks.high < 1.0

    async def check(self) -> None:
        """Check the space of all directories, and cordon or uncordon as needed."""
        if not self._is_on and not self._full:
            return
        spaces = await self._ask() if self._is_on else {}
        full = nearly_full(self._full, spaces, self._watermarks)
        if full == self._full:
            return
        before, self._full = self._full, full
        has_effect = self._cordon(full)
        for path in full:
            if path not in before:
                self._log_cordon(path, spaces[path], has_effect=has_effect)
        for path in before:
            if path not in full:
                self._log_end(path, spaces.get(path))

    def _log_cordon(self, path: str, space: Space, *, has_effect: bool) -> None:
        log.warning(
            "log directory %s is nearly full: %s; %s=%g; %s",
            path,
            _space_text(space),
            CORDON_HIGH_WATERMARK,
            self._watermarks.high,
            "it is cordoned and gets no new replicas"
            if has_effect
            else "it still gets new replicas: metadata.version does not support cordons",
        )

    def _log_end(self, path: str, space: Space | None) -> None:
        if space is None:
            log.info("log directory %s has no watermark cordon any more", path)
            return
        log.info(
            "log directory %s has free space again: %s; %s=%g; its watermark cordon is removed",
            path,
            _space_text(space),
            CORDON_LOW_WATERMARK,
            self._watermarks.low,
        )


def _space_text(space: Space) -> str:
    total_bytes, usable_bytes = space
    return (
        f"{100 * used_share(space):.1f} % of {size_text(total_bytes)} used, "
        f"{size_text(usable_bytes)} free"
    )
