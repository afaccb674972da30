"""The last values of the metrics that clients have pushed, for the metrics page of the broker.

Memory is bounded by the number of series: a series is a metric of a client with its labels. The
series of a client go when it has been silent for three of its intervals.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from spindle.common.uuids import Uuid
from spindle.serving.telemetry.otlp import Labels, Sample

MAX_SERIES_PER_CLIENT: Final = 2_000


class Series(NamedTuple):
    """One line of the metrics page."""

    name: str
    is_counter: bool
    labels: Mapping[str, str]
    value: float


class _Client:
    __slots__ = ("expires_ms", "labels", "values")

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.values: dict[tuple[str, bool, Labels], float] = {}
        self.expires_ms = 0


class ReceivedMetrics:
    """Series by client.

    Attributes:
        max_series: the most that are kept; `spindle.client.metrics.max.series`.
        series_count: how many are kept.
        dropped: samples that were not taken: of histograms and summaries, with names or values
            that are too long, or beyond the number of series.
    """

    def __init__(self, max_series: int) -> None:
        self.max_series = max_series
        self.series_count = 0
        self.dropped = 0
        self._clients: dict[Uuid, _Client] = {}
        self._kinds: dict[str, bool] = {}
        """Whether a metric is a counter: a name has one type on a page. The line of a counter ends
        with `_total`, so a gauge of that name counts as the same."""

    def add(
        self,
        instance_id: Uuid,
        labels: Mapping[str, str],
        samples: Iterable[Sample | None],
        expires_ms: int,
    ) -> None:
        """Take the samples of one push.

        Args:
            labels: those of the client, which outrank labels of the same names in samples.
            expires_ms: the time at which its series go if it does not push again.
        """
        client = self._clients.get(instance_id)
        if client is None:
            client = self._clients[instance_id] = _Client(labels)
        client.expires_ms = expires_ms
        for given in samples:
            sample = None if given is None else given._replace(labels=_others(given.labels, labels))
            if sample is None or not self._takes(client, sample):
                self.dropped += 1
                continue
            key = (sample.name, sample.is_counter, sample.labels)
            before = client.values.get(key)
            self.series_count += before is None
            added = before if before is not None and sample.is_added else 0.0
            client.values[key] = added + sample.value
        if not client.values:
            del self._clients[instance_id]

    def _takes(self, client: _Client, sample: Sample) -> bool:
        if self._kinds.get(_stem(sample.name), sample.is_counter) is not sample.is_counter:
            return False
        if (sample.name, sample.is_counter, sample.labels) in client.values:
            return True
        if self.series_count >= self.max_series or len(client.values) >= MAX_SERIES_PER_CLIENT:
            return False
        self._kinds[_stem(sample.name)] = sample.is_counter
        return True

    def expire(self, now_ms: int) -> None:
        """Remove the series of clients that have been silent for too long."""
        silent = [key for key, client in self._clients.items() if client.expires_ms <= now_ms]
        for instance_id in silent:
            self.series_count -= len(self._clients.pop(instance_id).values)
        if silent:
            kept = [key for client in self._clients.values() for key in client.values]
            self._kinds = {_stem(name): is_counter for name, is_counter, _ in kept}

    def __iter__(self) -> Iterator[Series]:
        """Yield the series; clients may push meanwhile."""
        for client in list(self._clients.values()):
            for (name, is_counter, labels), value in list(client.values.items()):
                yield Series(name, is_counter, {**dict(labels), **client.labels}, value)


def _stem(name: str) -> str:
    return name.removesuffix("_total")


def _others(labels: Labels, of_client: Mapping[str, str]) -> Labels:
    """Return the labels that those of the client leave: without them lines would be equal."""
    return tuple(label for label in labels if label[0] not in of_client)
