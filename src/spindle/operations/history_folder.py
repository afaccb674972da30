"""The folder of a history: JSON lines, a file for each day (UTC) of samples.

A line is the response of one broker in one sample. Files are only appended to, and all lines of a
sample are written at once. A kill in the middle leaves an incomplete line: readers skip it, and the
next writer terminates it. Files that are older than the retention are deleted.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from spindle.operations.errors import OperationFailed
from spindle.operations.sample_lines import broker_sample
from spindle.operations.state_files import naming_file
from spindle.planner.forecast.samples import BrokerSample, ClusterSample

_DAY_FILE: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.jsonl")
_BEGIN: Final = re.compile(rb'\{"timeMs": (\d{1,15}), "clusterId": ("[^"\\]*"), ')
_MS: Final = 1000
_DAY_MS: Final = 86_400_000
READ_DAYS: Final = 14
"""Number of days before the last sample that forecasts use."""
MAX_SAMPLES: Final = 96
"""Maximum number of samples that forecasts use, spread over these days."""


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """Samples of a cluster in order of their times.

    Attributes:
        bad_lines: malformed lines, as a kill may leave them.
        future_samples: samples of a wrong clock, which are left out.
    """

    samples: Sequence[ClusterSample]
    bad_lines: int = 0
    future_samples: int = 0


class HistoryWriter:
    """Appends samples to a folder."""

    def __init__(self, folder: Path, retention_ms: int) -> None:
        self._folder = folder
        self._retention_ms = retention_ms

    def append(self, time_ms: int, documents: Iterable[Mapping[str, Any]]) -> None:
        """Write a sample to the disk, and delete files older than the retention.

        Args:
            time_ms: of the sample, since the epoch.
            documents: one for each broker.

        Raises:
            OSError: a file cannot be written.
        """
        lines = "".join(f"{json.dumps(document)}\n" for document in documents).encode()
        path = self._folder / f"{_day(time_ms)}.jsonl"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            with naming_file(path):
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    lines = b"\n" + lines
                while lines:
                    lines = lines[os.write(file, lines) :]
                os.fsync(file)
        finally:
            os.close(file)
        self._delete_old(time_ms)

    def _delete_old(self, time_ms: int) -> None:
        files = _day_files(self._folder)
        days = [day for day, _ in files if day < _day(time_ms)]
        if not days:
            return
        # One sample of a wrong clock must not delete a history.
        latest_ms = min(time_ms, _begin_ms(days[-1]) + 2 * _DAY_MS)
        oldest = _day(max(0, latest_ms - self._retention_ms))
        for day, path in files:
            if day < oldest:
                path.unlink(missing_ok=True)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Create the folder if it is missing, and lock out other writers.

    Raises:
        OperationFailed: another process writes into it, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w", encoding="utf-8")
    except OSError as error:
        raise OperationFailed(f"{folder} cannot have a history: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationFailed(f"another process records into {folder}") from None
        yield


def read_history(folder: Path, cluster_id: str, max_samples: int = MAX_SAMPLES) -> RecordedHistory:
    """Return samples of a cluster, spread evenly over the last days of its history.

    Unneeded lines are skipped unparsed, so a long history costs little memory.

    Raises:
        OperationFailed: there is no history, or only one of other clusters.
    """
    files = [path for _, path in _day_files(folder)] if folder.is_dir() else []
    if not files:
        raise OperationFailed(f"{folder} has no history; spindle history record writes one")
    places, others, bad_lines = _scan(files, cluster_id)
    if not places:
        other_clusters = f" but of {', '.join(sorted(others))}" if others else ""
        raise OperationFailed(f"{folder} has no sample of cluster {cluster_id}{other_clusters}")
    times_ms = _up_to_now(sorted(places))
    chosen = _spread(
        [time_ms for time_ms in times_ms if time_ms > times_ms[-1] - READ_DAYS * _DAY_MS],
        max_samples,
    )
    samples = []
    for time_ms in chosen:
        brokers: dict[int, BrokerSample | None] = {}
        for path, offset in places[time_ms]:
            try:
                number, sample = broker_sample(_line(path, offset))
            except (ValueError, RecursionError):
                bad_lines += 1
                continue
            brokers[number] = sample
        if brokers:
            samples.append(ClusterSample(time_ms, brokers))
    if not samples:
        raise OperationFailed(f"{folder} has no sample of cluster {cluster_id} that is whole")
    return RecordedHistory(samples, bad_lines, len(places) - len(times_ms))


def _up_to_now(times_ms: Sequence[int]) -> Sequence[int]:
    """Leave out times of a wrong clock; return all times if none would be left."""
    end_ms = time.time_ns() // 1_000_000 + _DAY_MS
    return [time_ms for time_ms in times_ms if time_ms <= end_ms] or times_ms


LinePlace = tuple[Path, int]


def _scan(
    files: Sequence[Path], cluster_id: str
) -> tuple[dict[int, list[LinePlace]], set[str], int]:
    """Return the positions of each sample's lines, other clusters, and the count of bad lines.

    A bad line does not begin as others do, or is incomplete.
    """
    places: dict[int, list[LinePlace]] = {}
    others: set[str] = set()
    bad_lines = 0
    own = json.dumps(cluster_id).encode()
    for path in files:
        offset = 0
        with path.open("rb") as file:
            for line in file:
                begin = _BEGIN.match(line)
                if begin is None or not line.endswith(b"}\n"):
                    bad_lines += bool(line.strip())
                elif begin[2] == own:
                    places.setdefault(int(begin[1]), []).append((path, offset))
                else:
                    others.add(begin[2].decode(errors="replace").strip('"'))
                offset += len(line)
    return places, others, bad_lines


def _line(path: Path, offset: int) -> Any:
    with path.open("rb") as file:
        file.seek(offset)
        return json.loads(file.readline())


def _spread(times_ms: Sequence[int], most: int) -> list[int]:
    """Return at most this many times, spread evenly, with the first and the last one."""
    if len(times_ms) <= most:
        return list(times_ms)
    begin_ms, end_ms = times_ms[0], times_ms[-1]
    parts: dict[int, int] = {}
    for time_ms in times_ms:
        parts.setdefault((time_ms - begin_ms) * (most - 1) // (end_ms - begin_ms), time_ms)
    return sorted(parts.values())


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / _MS, UTC).strftime("%Y-%m-%d")


def _begin_ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * _MS


def _day_files(folder: Path) -> list[tuple[str, Path]]:
    matches = ((_DAY_FILE.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((match[1], path) for match, path in matches if match is not None)
