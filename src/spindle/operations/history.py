"""The history of a cluster: sizes and offsets, recorded at intervals, and forecasts from them.

Examples:
    >>> from spindle.operations import history
    >>> history.record(client, Path("sizes"))  # one sample: call it every few minutes
    >>> forecast = history.forecast(client, Path("sizes"))
    >>> for directory in forecast.directories:
    ...     print(directory.model, directory.time_to_full.expected_s)
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from spindle.client.admin.cluster import describe_brokers
from spindle.client.admin.refusals import failure_text
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import ask_every_broker, log_dirs_of
from spindle.client.cluster_metadata import BrokerAddress, ClusterView
from spindle.client.offsets import list_offsets_request
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun
from spindle.common.uuids import uuid_text
from spindle.operations.cancellation import Cancellation
from spindle.operations.events import OnProgress, ProgressEvent, ignore_progress
from spindle.operations.forecasts import ClusterForecast, history_remarks
from spindle.operations.history_folder import HistoryWriter, only_writer, read_history
from spindle.operations.repetition import repeat
from spindle.operations.sample_lines import sample_document
from spindle.operations.snapshot import read_snapshot
from spindle.planner.forecast.growth import PartitionRates
from spindle.planner.forecast.samples import LedSample
from spindle.planner.forecast.time_to_full import TimeToFull
from spindle.planner.model import DirectoryModel
from spindle.protocol.messages.list_offsets import ListOffsetsResponse
from spindle.protocol.sentinels import EARLIEST, LATEST, READ_UNCOMMITTED

DEFAULT_INTERVAL_MS: Final = 5 * 60_000
DEFAULT_RETENTION_MS: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class SampleRecorded(ProgressEvent):
    """A sample was written to the history.

    Attributes:
        time_ms: since 1970.
        brokers: the number of brokers.
        silent_brokers: the brokers that did not respond.
    """

    event: ClassVar[str] = "recorded"
    time_ms: int
    brokers: int
    silent_brokers: list[int]

    @property
    def text(self) -> str:
        text = f"recorded {count_noun(self.brokers, 'broker')}"
        silent = ", ".join(map(str, self.silent_brokers))
        return f"{text}; no answer from {silent}" if silent else text


@dataclass(frozen=True, slots=True)
class SampleFailed(ProgressEvent):
    """A sample could not be taken or written; the next one follows."""

    event: ClassVar[str] = "failed"
    reason: str

    @property
    def text(self) -> str:
        return f"no sample: {self.reason}"


def record(
    client: WireClient, folder: Path, *, retention_ms: int = DEFAULT_RETENTION_MS
) -> SampleRecorded:
    """Append one sample to the history in a folder.

    A sample has the sizes of replicas, the space of directories and the offsets of partitions. A
    broker that does not respond has a line with the reason. The sample is on the disk when the
    function returns; a kill at any moment leaves a history that can be read and continued.

    Args:
        folder: created if it does not exist.
        retention_ms: files of older days are deleted.

    Raises:
        OperationFailed: another process records into the folder, or it cannot be created.
        ApiError, ClientError: the cluster could not be asked for its brokers and partitions.
        OSError: a file cannot be written.
    """
    with only_writer(folder):
        return _record(client, HistoryWriter(folder, retention_ms))


def keep_recording(
    client: WireClient,
    folder: Path,
    *,
    interval_ms: int = DEFAULT_INTERVAL_MS,
    retention_ms: int = DEFAULT_RETENTION_MS,
    on_progress: OnProgress = ignore_progress,
    cancellation: Cancellation | None = None,
) -> NoReturn:
    """Append samples to the history in a folder as `record` does, until it is cancelled.

    A failure ends only a single sample, and is reported.

    Args:
        interval_ms: from the begin of a sample to that of the next one.

    Raises:
        OperationFailed: another process records into the folder, or it cannot be made.
        Cancelled, KeyboardInterrupt: it was cancelled.
    """
    writer = HistoryWriter(folder, retention_ms)
    with only_writer(folder):
        repeat(
            lambda: on_progress(_record(client, writer)),
            interval_ms,
            lambda reason: on_progress(SampleFailed(reason)),
            time.sleep if cancellation is None else cancellation.sleep,
            is_from_begin=True,
        )


def _record(client: WireClient, writer: HistoryWriter) -> SampleRecorded:
    time_ms = time.time_ns() // 1_000_000
    documents = take_sample(client, time_ms)
    writer.append(time_ms, documents)
    silent = [document["broker"] for document in documents if document["error"] is not None]
    return SampleRecorded(time_ms, len(documents), silent)


@dataclass(frozen=True, slots=True)
class DirectoryForecast:
    """The forecast of a log directory.

    Attributes:
        model: its broker, path, capacity and use.
        time_to_full: when it is full, or why that is unknown.
    """

    model: DirectoryModel
    time_to_full: TimeToFull


@dataclass(frozen=True, slots=True)
class HistoryForecast:
    """The forecasts of a cluster.

    Attributes:
        time_ms: when the cluster was read, since 1970.
        remarks: about the history, and about missing data of the cluster.
        partitions: the growth of a replica, and the produced bytes.
    """

    time_ms: int
    cluster_id: str | None
    remarks: tuple[str, ...]
    directories: tuple[DirectoryForecast, ...]
    partitions: Mapping[TopicPartition, PartitionRates]


def forecast(client: WireClient, folder: Path) -> HistoryForecast:
    """Return when each log directory of a cluster is full, by the history in a folder.

    Raises:
        OperationFailed: there is no history of the cluster, or its answers contradict each other.
        ApiError, ClientError: the cluster could not be asked.
    """
    recorded = read_history(folder, describe_brokers(client).cluster_id)
    snapshot = read_snapshot(client, None, is_for_plan=False)
    forecasts = ClusterForecast(recorded)
    return HistoryForecast(
        time_ms=time.time_ns() // 1_000_000,
        cluster_id=snapshot.cluster_id,
        remarks=(*history_remarks(recorded), *snapshot.remarks),
        directories=tuple(
            DirectoryForecast(model, _time_to_full(forecasts, model))
            for model in snapshot.model.directories
        ),
        partitions=forecasts.rates,
    )


def _time_to_full(forecasts: ClusterForecast, model: DirectoryModel) -> TimeToFull:
    free_bytes = model.capacity_bytes - model.kept_bytes if model.capacity_bytes else -1
    key = (model.broker_id, model.path)
    return forecasts.time_to_full(key, max(free_bytes, -1), is_online=model.is_online)


def take_sample(client: WireClient, time_ms: int) -> list[dict[str, Any]]:
    """Return a document of each broker: its directories, and offsets of partitions it leads.

    A broker that does not respond has a document with the reason.

    Args:
        time_ms: the present time, since the epoch.

    Raises:
        ApiError, ClientError: the cluster could not be asked for its brokers and partitions.
    """
    brokers = describe_brokers(client)
    led = _led(client.metadata())

    def ask(single: WireClient, broker: BrokerAddress) -> dict[str, Any]:
        views = log_dirs_of(single, broker)
        offsets = _offsets(single, broker, led.get(broker.node_id, {}))
        return sample_document(time_ms, brokers.cluster_id, broker.node_id, views, offsets)

    answers = ask_every_broker(client, brokers.nodes, ask)
    return [
        sample_document(time_ms, brokers.cluster_id, broker, None, {}, failure_text(answer))
        if isinstance(answer, Exception)
        else answer
        for broker, answer in answers.items()
    ]


def _led(view: ClusterView) -> dict[int, dict[TopicPartition, str]]:
    """Return the partitions that each broker leads, with their topic ids."""
    led: dict[int, dict[TopicPartition, str]] = {}
    for name, topic in view.topics.items():
        for number, partition in topic.partitions.items():
            where = TopicPartition(name, number)
            led.setdefault(partition.leader, {})[where] = uuid_text(topic.topic_id)
    return led


def _offsets(
    client: WireClient, broker: BrokerAddress, led: Mapping[TopicPartition, str]
) -> dict[TopicPartition, LedSample]:
    """Return the offsets of partitions that the broker still leads."""
    if not led:
        return {}
    starts, ends = (
        _list_offsets(client, broker, dict.fromkeys(led, number)) for number in (EARLIEST, LATEST)
    )
    return {
        where: LedSample(topic_id, starts[where], ends[where])
        for where, topic_id in led.items()
        if where in starts and where in ends
    }


def _list_offsets(
    client: WireClient, broker: BrokerAddress, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    request = list_offsets_request(
        wanted, isolation_level=READ_UNCOMMITTED, timeout_ms=client.settings.request_timeout_ms
    )
    answer = client.ask(request, ListOffsetsResponse, broker=broker)
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    }
