"""The log of refusals: principal, address, operation, resource (`kafka.authorizer.logger`)."""

import logging
from collections.abc import Callable
from typing import Final

from spindle.authorization.operations import Operation, ResourceType
from spindle.common.text import quoted
from spindle.protocol.api import APIS, ApiKey

log = logging.getLogger("spindle.authorizer")

_PAUSE_MS: Final = 10_000
"""Identical denials within this time are counted, not logged."""
_MAX_ENTRIES: Final = 1_000
"""Different refusals that are logged in this time; more of them are only counted."""
_KEPT_CHARACTERS: Final = 101
"""One more than the log shows of a name: the rest would only need memory."""


class Denials:
    """Logs refusals, equal ones at most once in ten seconds.

    Args:
        steady_ms: a clock for durations.
    """

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._counts: dict[tuple[str, str, int, int, str, int], int] = {}
        self._unlogged = 0
        self._ends_ms = 0

    def note(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        api_key: int,
    ) -> None:
        """Log a refusal, or count it if it was logged a moment ago."""
        now_ms = self._steady_ms()
        if now_ms >= self._ends_ms:
            self._log_counts()
            self._ends_ms = now_ms + _PAUSE_MS
        name = name[:_KEPT_CHARACTERS]
        key = (principal, host, operation, resource_type, name, api_key)
        count = self._counts.get(key)
        if count is not None:
            self._counts[key] = count + 1
        elif len(self._counts) < _MAX_ENTRIES:
            self._counts[key] = 0
            log.info("%s", _sentence(*key))
        else:
            self._unlogged += 1

    def _log_counts(self) -> None:
        for key, count in self._counts.items():
            if count:
                log.info("%s (%d more times)", _sentence(*key), count)
        if self._unlogged:
            log.info("%d more requests of other principals or resources denied", self._unlogged)
        self._counts.clear()
        self._unlogged = 0


def _sentence(
    principal: str, host: str, operation: int, resource_type: int, name: str, api_key: int
) -> str:
    request = f" for request = {ApiKey(api_key).name}" if api_key in APIS else ""
    return (
        f"Principal = {quoted(principal)} is Denied operation = {Operation(operation).name} "
        f"from host = {host} on resource = {ResourceType(resource_type).name}:LITERAL:"
        f"{quoted(name)}{request}"
    )
