"""The cordoned directories of a broker: what its configuration and the cluster's level say."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.config.broker_keys.spindle import CORDON_NOTES
from spindle.config.broker_values import BrokerValues
from spindle.config.cordon_notes import CordonNote, kept_notes, notes_text, parse_notes
from spindle.config.log_dir_paths import EVERY_DIRECTORY, cordon_entries, match_paths
from spindle.config.node_config import NodeConfig
from spindle.controller.configs import CORDONED_LOG_DIRS, DELETE, SET, SUBTRACT
from spindle.disks.cordons import cordoned_paths
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.configs import BROKER_RESOURCE
from spindle.metadata.features import CORDONED_DIRECTORIES_LEVEL, metadata_version_name
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.runtime import background
from spindle.runtime.backoff import Backoff

log = logging.getLogger(__name__)

_FIRST_RETRY_MS: Final = 100
_LONGEST_RETRY_MS: Final = 10_000
_LONGEST_SLEEP_MS: Final = 60_000
"""The wall clock may be set while a note waits for its end, so it is read again after this time."""

_Changed = IncrementalAlterConfigsRequest.AlterConfigsResource


class CordonKeeper:
    """Follows `cordoned.log.dirs` of one broker (KIP-1066); ends cordons whose time is over.

    Args:
        tell: gets the cordoned directories whenever they may have changed.
        ask: sends a request to the active controller.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        config: NodeConfig,
        directories: Sequence[LogDirectory],
        tell: Callable[[Sequence[LogDirectory]], None],
        ask: Callable[[Message], Awaitable[Any]],
        now_ms: Callable[[], int],
        random: Callable[[], float],
    ) -> None:
        self._config = config
        self._directories = {directory.path: directory for directory in directories}
        self._tell = tell
        self._ask = ask
        self._now_ms = now_ms
        self._backoff = Backoff(_FIRST_RETRY_MS, _LONGEST_RETRY_MS, random)
        self._followed: tuple[int, str | None] | None = None
        self._entries: tuple[str, ...] = ()
        self._notes: tuple[CordonNote, ...] = ()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to end cordons whose time is over."""
        self._task = background.run_forever(self._turn, "ends of cordons")

    async def stop(self) -> None:
        await background.end(self._task)

    # -- following the configuration

    def follow(self, image: MetadataImage) -> None:
        """Apply the configuration in the image, if it differs from the one before."""
        own = image.configs.broker(self._config.node_id)
        self._follow_notes(own.get(CORDONED_LOG_DIRS), BrokerValues(self._config, own))
        followed = image.metadata_version, own.get(CORDONED_LOG_DIRS)
        if followed != self._followed:
            self._followed = followed
            self._follow_cordons(*followed)

    def _follow_cordons(self, metadata_version: int, dynamic: str | None) -> None:
        configured = self._config.names(CORDONED_LOG_DIRS)
        paths = cordoned_paths(tuple(self._directories), configured, dynamic)
        if paths and metadata_version < CORDONED_DIRECTORIES_LEVEL:
            log.warning(
                "%s=%s has no effect: cordons need metadata.version %s, and the cluster has %s",
                CORDONED_LOG_DIRS,
                ",".join(configured) if dynamic is None else dynamic,
                metadata_version_name(CORDONED_DIRECTORIES_LEVEL),
                metadata_version_name(metadata_version),
            )
            paths = ()
        if dynamic is not None:
            self._warn_of_strangers(cordon_entries(dynamic))
        self._tell([self._directories[path] for path in paths])

    def _warn_of_strangers(self, entries: Sequence[str]) -> None:
        found = match_paths(entries, tuple(self._directories))
        strangers = [e for e, path in found.items() if path is None and e != EVERY_DIRECTORY]
        if strangers:
            log.warning(
                "%s names %s, which is no log directory of this broker; the entry has no effect",
                CORDONED_LOG_DIRS,
                ", ".join(strangers),
            )

    def _follow_notes(self, dynamic: str | None, values: BrokerValues) -> None:
        entries, notes = cordon_entries(dynamic or ""), parse_notes(values.text(CORDON_NOTES))
        if (entries, notes) != (self._entries, self._notes):
            self._entries, self._notes = entries, notes
            self._wake.set()

    # -- ending cordons

    async def _turn(self) -> None:
        self._wake.clear()
        delay_ms = await self._end_cordons()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_ms / 1000):
                await self._wake.wait()

    async def _end_cordons(self) -> float:
        """End the cordons whose time is over; return the ms after which to look again."""
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
        return min([_LONGEST_SLEEP_MS, *(max(0, end_ms - now_ms) for end_ms in ends_ms)])

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
        response = await self._ask(IncrementalAlterConfigsRequest(resources=[resource]))
        for result in response.responses:
            if result.error_code:
                raise ApiError(ErrorCode(result.error_code), result.error_message)


def described(note: CordonNote) -> str:
    """Return a note as a log line shows it."""
    text = note.path
    if note.owner is not None:
        text += f", by {note.owner}"
    return text if note.reason is None else f"{text}: {note.reason}"
