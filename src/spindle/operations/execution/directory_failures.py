"""Directories that go offline during an execution: reported at once and in its last line."""

from collections.abc import Collection, Mapping


class DirectoryFailures:
    """Notices the directories that go offline after the first look, and those that come back."""

    def __init__(self) -> None:
        self._before: set[tuple[int, str]] | None = None
        self._offline: set[tuple[int, str]] = set()

    def see(self, offline: Mapping[int, Collection[str]], described: Collection[int]) -> list[str]:
        """Take note of the directories that are offline; return the new ones as `BROKER:DIR`.

        Args:
            offline: the paths of directories that have failed, by broker.
            described: the brokers that have reported their directories. Those of a broker that does
                not answer stay offline.
        """
        failed = {(broker, path) for broker, paths in offline.items() for path in paths}
        if self._before is None:
            self._before = self._offline = failed
        new = failed - self._offline
        self._offline = failed | {place for place in self._offline if place[0] not in described}
        self._before &= self._offline
        return _names(new)

    def still_offline(self) -> list[str]:
        """Return those that went offline after the first look and were not back at the last one."""
        return _names(self._offline - (self._before or set()))


def _names(directories: Collection[tuple[int, str]]) -> list[str]:
    return [f"{broker}:{path}" for broker, path in sorted(directories)]
