"""The state that `heal` keeps over a restart: failures with their times, and moved bytes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spindle.operations.errors import OperationFailed
from spindle.operations.state_files import replace_document

_DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class HealMemory:
    """The content of the file.

    Attributes:
        offline_ms: how long each directory, as `BROKER:DIR`, was seen offline without a break.
        looked_ms: the time of the last check.
        moved: the times of rounds, and the bytes that they moved.
    """

    path: Path
    cluster_id: str
    offline_ms: dict[str, int] = field(default_factory=dict)
    looked_ms: int = 0
    moved: list[tuple[int, int]] = field(default_factory=list)

    def see_offline(self, names: Iterable[str], now_ms: int, max_ms: int) -> None:
        """Record the directories that are offline now.

        Args:
            max_ms: the time between two checks; at most this much of the time since the last check
                counts, because it may include a pause or a change of the clock.
        """
        passed_ms = min(max(0, now_ms - self.looked_ms), max_ms)
        self.offline_ms = {
            name: self.offline_ms[name] + passed_ms if name in self.offline_ms else 0
            for name in names
        }
        self.looked_ms = now_ms
        self.save()

    def record_moved(self, size_bytes: int, now_ms: int) -> None:
        """Record a round before it begins."""
        self._keep_a_day(now_ms)
        self.moved.append((now_ms, size_bytes))
        self.save()

    def spent_bytes(self, now_ms: int) -> int:
        """Return the bytes that the rounds of the last 24 hours moved."""
        self._keep_a_day(now_ms)
        self.save()
        return sum(size for _, size in self.moved)

    def _keep_a_day(self, now_ms: int) -> None:
        # A wrong clock must not block the bytes of a day for longer than a day.
        moved = [(min(ms, now_ms), size) for ms, size in self.moved]
        self.moved = [(ms, size) for ms, size in moved if ms > now_ms - _DAY_MS]

    def save(self) -> None:
        """Replace the file in one step."""
        document = {
            "clusterId": self.cluster_id,
            "offlineMs": self.offline_ms,
            "lookedMs": self.looked_ms,
            "moved": self.moved,
        }
        replace_document(self.path, document)


def open_memory(path: Path, cluster_id: str) -> HealMemory:
    """Return the state of an earlier run, or a new one.

    Raises:
        OperationFailed: the file belongs to another cluster, or is malformed.
    """
    if not path.exists():
        return HealMemory(path, cluster_id)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        other = document["clusterId"]
        offline = {str(name): int(ms) for name, ms in document["offlineMs"].items()}
        looked_ms = int(document["lookedMs"])
        moved = [(int(ms), int(size)) for ms, size in document["moved"]]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise OperationFailed(
            f"{path} is not a state file of heal, or is damaged; choose another folder with `state`"
        ) from None
    if other != cluster_id:
        raise OperationFailed(
            f"{path} is of cluster {other}, not of {cluster_id}; choose another folder with `state`"
        )
    return HealMemory(path, cluster_id, offline, looked_ms, moved)
