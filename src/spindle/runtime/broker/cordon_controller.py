"""The cordoned directories of a broker, from its configuration, its full disks, and the
metadata.version."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.config.broker_keys.spindle import CORDON_NOTES
from spindle.config.broker_values import BrokerValues
from spindle.config.cordon_notes import CordonNote, kept_notes, notes_text, parse_notes
from spindle.config.log_dir_paths import EVERY_DIRECTORY, match_paths
from spindle.config.node_config import NodeConfig
from spindle.controller.configs import CORDONED_LOG_DIRS, DELETE, SET, SUBTRACT
from spindle.disks.cordons import Cordon, entries_in_force, read_cordons
from spindle.disks.fill_watermarks import Space
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.configs import BROKER_RESOURCE
from spindle.metadata.features import CORDONED_DIRECTORIES_LEVEL, metadata_version_name
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.runtime import background
from spindle.runtime.backoff import Backoff
from spindle.runtime.broker.disk_watermarks import DiskWatermarks

log = logging.getLogger(__name__)

_FIRST_RETRY_MS: Final = 100
_MAX_RETRY_MS: Final = 10_000
_MAX_SLEEP_MS: Final = 60_000
"""The wall clock may be set while a note waits for its end, so it is read again after this time."""

_Changed = IncrementalAlterConfigsRequest.AlterConfigsResource


class CordonController:
    """Follows `cordoned.log.dirs` of one broker (KIP-1066); removes cordons that have expired.

    Args:
        directories: of the broker; the list changes when a directory is added or removed.
        on_change: called with the cordons by path of the directory, whenever they may have changed.
        free_space: returns total and usable bytes of the directories that are online, by path.
        send_request: sends a request to the active controller.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        config: NodeConfig,
        directories: Sequence[LogDirectory],
        on_change: Callable[[Mapping[str, Sequence[Cordon]]], None],
        free_space: Callable[[], Awaitable[Mapping[str, Space]]],
        send_request: Callable[[Message], Awaitable[Any]],
        now_ms: Callable[[], int],
        random: Callable[[], float],
    ) -> None:
        self._config = config
        self._directories = directories
        self._on_change = on_change
        self._send_request = send_request
        self._now_ms = now_ms
        self._backoff = Backoff(_FIRST_RETRY_MS, _MAX_RETRY_MS, random)
        self._followed: tuple[int, str | None, tuple[CordonNote, ...]] | None = None
        self._level = 0
        self._full: tuple[str, ...] = ()
        self._entries: tuple[str, ...] = ()
        self._notes: tuple[CordonNote, ...] = ()
        self._guard = DiskWatermarks(BrokerValues(config), free_space, self._cordon_full)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to remove expired cordons and to watch the free space of the directories."""
        self._task = background.run_forever(self._turn, "ends of cordons")
        self._guard.start()

    async def stop(self) -> None:
        await self._guard.stop()
        await background.end(self._task)

    def update(self, values: BrokerValues) -> None:
        """Use the watermarks of these values from now on."""
        self._guard.update(values)

    async def check_space(self) -> None:
        """Cordon the directories that are nearly full now."""
        await self._guard.check()

    # -- what is cordoned

    def directories_changed(self, image: MetadataImage) -> None:
        """Apply the configuration in the image to the directories that the broker has now."""
        self._followed = None
        self.follow(image)

    def follow(self, image: MetadataImage) -> None:
        """Apply the configuration in the image if it has changed."""
        own = image.configs.broker(self._config.node_id)
        values = BrokerValues(self._config, own)
        followed = (
            image.metadata_version,
            own.get(CORDONED_LOG_DIRS),
            parse_notes(values.text(CORDON_NOTES)),
        )
        if followed == self._followed:
            return
        self._followed = followed
        self._level, dynamic, self._notes = followed
        self._entries = entries_in_force(self._config.names(CORDONED_LOG_DIRS), dynamic)
        if self._entries and not self._has_effect:
            log.warning(
                "%s=%s has no effect: cordons need metadata.version %s, and the cluster has %s",
                CORDONED_LOG_DIRS,
                ",".join(self._entries),
                metadata_version_name(CORDONED_DIRECTORIES_LEVEL),
                metadata_version_name(self._level),
            )
        self._warn_of_unknown_entries()
        self._apply()
        self._wake.set()

    def _cordon_full(self, paths: Sequence[str]) -> bool:
        """Cordon exactly these directories because they are nearly full, beside those of the
        configuration; return False if cordons have no effect at the cluster's level."""
        self._full = tuple(paths)
        self._apply()
        return self._has_effect

    @property
    def _has_effect(self) -> bool:
        return self._level >= CORDONED_DIRECTORIES_LEVEL

    @property
    def _paths(self) -> tuple[str, ...]:
        return tuple(directory.path for directory in self._directories)

    def _apply(self) -> None:
        if self._has_effect:
            self._on_change(read_cordons(self._paths, self._entries, self._notes, self._full))
        else:
            self._on_change({})

    def _warn_of_unknown_entries(self) -> None:
        matched = match_paths(self._entries, self._paths)
        unknown = [e for e, path in matched.items() if path is None and e != EVERY_DIRECTORY]
        if unknown:
            log.warning(
                "%s names %s, which is not a log directory of this broker; the entry has no effect",
                CORDONED_LOG_DIRS,
                ", ".join(unknown),
            )

    # -- ending cordons

    async def _turn(self) -> None:
        self._wake.clear()
        delay_ms = await self._end_cordons()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await self._wake.wait()

    async def _end_cordons(self) -> float | None:
        """Remove expired cordons; return the ms until the next one expires.

        Return None if no cordon expires.
        """
        now_ms = self._now_ms()
        over = [n for n in kept_notes(self._notes, self._entries) if n.is_expired(now_ms)]
        ended = [note.path for note in over]
        kept = [n for n in kept_notes(self._notes, self._entries) if n.path not in ended]
        if len(kept) < len(self._notes):
            for note in over:
                log.info("the time of a cordon is over: %s", described(note))
            try:
                await self._remove(ended, kept)
            except ApiError as error:
                log.warning("cordons were not removed: %s", error)
                return self._backoff.next_ms()
            self._backoff.reset()
        ends_ms = [note.until_ms for note in kept if note.until_ms is not None]
        if not ends_ms:
            return None
        return min(_MAX_SLEEP_MS, max(0, min(ends_ms) - now_ms))

    async def _remove(self, ended: Sequence[str], kept: Sequence[CordonNote]) -> None:
        """Remove cordons, and every note that is not kept, with one request.

        Raises:
            ApiError: the controller refused, or none answered.
        """
        text = notes_text(kept)
        changed = [
            _Changed.AlterableConfig(
                name=CORDON_NOTES,
                config_operation=DELETE if text is None else SET,
                value=text,
            )
        ]
        if ended:
            # A subtraction leaves the cordons that an operator adds at this moment.
            changed.append(
                _Changed.AlterableConfig(
                    name=CORDONED_LOG_DIRS, config_operation=SUBTRACT, value=",".join(ended)
                )
            )
        resource = _Changed(
            resource_type=BROKER_RESOURCE,
            resource_name=str(self._config.node_id),
            configs=changed,
        )
        response = await self._send_request(IncrementalAlterConfigsRequest(resources=[resource]))
        for result in response.responses:
            if result.error_code:
                raise ApiError(ErrorCode(result.error_code), result.error_message)


def described(note: CordonNote) -> str:
    """Return a note in the form of a log line."""
    text = note.path
    if note.owner is not None:
        text += f", by {note.owner}"
    return text if note.reason is None else f"{text}: {note.reason}"
