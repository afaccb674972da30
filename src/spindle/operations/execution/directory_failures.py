"""Directories that go offline during an execution: reported at once and in its last line."""

from collections.abc import Collection, Mapping


class DirectoryFailures:
    """Tracks the directories that go offline after the first check, and those that come back."""

    def __init__(self) -> None:
        self._before: set[tuple[int, str]] | None = None
        self._offline: set[tuple[int, str]] = set()

    def see(self, offline: Mapping[int, Collection[str]], described: Collection[int]) -> list[str]:
        """Record the offline directories; return the new ones as `BROKER:DIR`.

        Args:
            offline: the paths of failed directories, by broker.
            described: the brokers that have reported their directories. Directories of a broker
                that does not respond stay offline.
        """
        failed = {(broker, path) for broker, paths in offline.items() for path in paths}
        if self._before is None:
            self._before = self._offline = failed
        new = failed - self._offline
        self._offline = failed | {place for place in self._offline if place[0] not in described}
        self._before &= self._offline
        return _names(new)

    def still_offline(self) -> list[str]:
        """Return the directories that went offline after the first check and are still offline."""
        return _names(self._offline - (self._before or set()))


def _names(directories: Collection[tuple[int, str]]) -> list[str]:
    return [f"{broker}:{path}" for broker, path in sorted(directories)]
