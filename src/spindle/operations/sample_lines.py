"""The JSON lines of a history: each is the response of one broker in one sample.

Replicas and partitions are columns by topic, so that a line is short and Spark can read it with one
schema (docs/guide/planning.md).
"""

from collections.abc import Mapping
from typing import Any

from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.planner.forecast.samples import BrokerSample, DirectorySample, LedSample


def sample_document(
    time_ms: int,
    cluster_id: str,
    broker_id: int,
    views: list[LogDirView] | None,
    led: Mapping[TopicPartition, LedSample],
    error: str | None = None,
) -> dict[str, Any]:
    """Return the document of a broker's response; its first two keys stay in this order.

    Args:
        time_ms: of the sample, since the epoch: the same for all its brokers.
        views: None if the broker did not respond; `error` gives the reason.
    """
    return {
        "timeMs": time_ms,
        "clusterId": cluster_id,
        "broker": broker_id,
        "error": error,
        "directories": None if views is None else [_directory_document(view) for view in views],
        "led": _led_documents(led),
    }


def _directory_document(view: LogDirView) -> dict[str, Any]:
    topics: dict[str, dict[str, Any]] = {}
    for where, replica in sorted(view.replicas.items()):
        if not replica.is_future:
            entry = topics.setdefault(
                where.topic, {"topic": where.topic, "partitions": [], "sizes": []}
            )
            entry["partitions"].append(where.partition)
            entry["sizes"].append(replica.size_bytes)
    moving = sum(replica.size_bytes for replica in view.replicas.values() if replica.is_future)
    return {
        "path": view.path,
        "isOnline": view.error is ErrorCode.NONE,
        "totalBytes": view.total_bytes,
        "usableBytes": view.usable_bytes,
        "movingBytes": moving,
        "topics": list(topics.values()),
    }


def _led_documents(led: Mapping[TopicPartition, LedSample]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for where, sample in sorted(led.items()):
        entry = topics.setdefault(
            where.topic,
            {
                "topic": where.topic,
                "topicId": sample.topic_id,
                "partitions": [],
                "startOffsets": [],
                "endOffsets": [],
            },
        )
        entry["partitions"].append(where.partition)
        entry["startOffsets"].append(sample.start_offset)
        entry["endOffsets"].append(sample.end_offset)
    return list(topics.values())


def broker_sample(document: Any) -> tuple[int, BrokerSample | None]:
    """Return the broker and its response in a document; None if it did not respond.

    Raises:
        ValueError: the document is of another form.
    """
    try:
        number = int(document["broker"])
        if document["directories"] is None:
            return number, None
        directories = {
            str(directory["path"]): DirectorySample(
                bool(directory["isOnline"]),
                int(directory["totalBytes"]),
                int(directory["usableBytes"]),
                int(directory["movingBytes"]),
                {
                    TopicPartition(str(topic["topic"]), int(partition)): int(size)
                    for topic in directory["topics"]
                    for partition, size in zip(topic["partitions"], topic["sizes"], strict=True)
                },
            )
            for directory in document["directories"]
        }
        led = {
            TopicPartition(str(topic["topic"]), int(partition)): LedSample(
                str(topic["topicId"]), int(start), int(end)
            )
            for topic in document["led"]
            for partition, start, end in zip(
                topic["partitions"], topic["startOffsets"], topic["endOffsets"], strict=True
            )
        }
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"this is not a sample of a broker: {error!r}") from None
    return number, BrokerSample(directories, led)
