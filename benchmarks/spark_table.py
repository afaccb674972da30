"""The rows of the Spark comparison: the work, the ways to do it, and the goals.

A row has the built-in source's way first. The other ways are compared with it on the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BUILT_IN = "kafka"
BROKER = "spindle"
DISKS = "spindle-segments"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with a share of the records of the run.

    An input is filled before the measurement. The others are the options `topic` of their ways.
    """

    name: str
    partitions: int
    value_bytes: int
    share: float = 1.0
    is_input: bool = True

    def records_of(self, records: int) -> int:
        """Return the size of the topic, the same in each partition, if the whole is `records`."""
        return max(1, int(records * self.share) // self.partitions) * self.partitions


TOPIC = Topic("rows-8", 8, 100)
ONE_PARTITION = Topic("rows-1", 1, 100, 0.5)
LARGE_VALUES = Topic("rows-1KiB", 8, 1024, 0.25)
OUTPUT = Topic("written", 8, 100, 0.25, is_input=False)
TOPICS = (TOPIC, ONE_PARTITION, LARGE_VALUES, OUTPUT)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work of a row.

    `source` is a format of Spark and `job` a function of `spark_rows`; `options` are added to the
    selection of the topic.
    """

    label: str
    source: str
    job: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """Work on a topic. The goal, if there is one, is the least ratio to the first way."""

    name: str
    work: str
    goal: float | None
    ways: tuple[Way, ...]
    topic: Topic = TOPIC

    @property
    def baseline(self) -> Way:
        return self.ways[0]


@dataclass(slots=True)
class Samples:
    """Measured runs of one way on one cluster; CPU times of those runs that tell them."""

    rows_per_s: list[float] = field(default_factory=list)
    client_cpu_s: list[float] = field(default_factory=list)
    broker_cpu_s: list[float] = field(default_factory=list)


_ALL_COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType"


def _everywhere(job: str, **options: str) -> tuple[Way, ...]:
    """Return the same job for each source, by whose name the way is called."""
    return (
        Way("kafka source", BUILT_IN, job, options),
        Way("spindle source", BROKER, job),
        Way("spindle-segments", DISKS, job),
    )


def _export() -> tuple[Way, ...]:
    return (
        Way("kafka source, Spark's Parquet", BUILT_IN, "parquet"),
        Way("spindle source, Spark's Parquet", BROKER, "parquet"),
        *(
            Way(f"{job}, {label}", source, job, {"columns": _ALL_COLUMNS})
            for job in ("export_parquet", "export_delta")
            for label, source in (("spindle", BROKER), ("segments", DISKS))
        ),
    )


ROWS = (
    Row("all-columns", "all columns, 100 B, 8 partitions", 3, _everywhere("noop")),
    Row(
        "one-partition",
        "all columns, 100 B, 1 partition",
        5,
        _everywhere("noop"),
        ONE_PARTITION,
    ),
    Row(
        "one-partition-split",
        "the same; kafka source with minPartitions=4",
        3,
        _everywhere("noop", minPartitions="4"),
        ONE_PARTITION,
    ),
    Row("large-values", "all columns, 1 KiB, 8 partitions", 3, _everywhere("noop"), LARGE_VALUES),
    Row(
        "count",
        "count()",
        20,
        (
            *_everywhere("count"),
            Way("count_records", DISKS, "count_records"),
        ),
    ),
    Row(
        "two-columns",
        "select(offset, timestamp)",
        6,
        (
            Way("kafka source", BUILT_IN, "two_columns"),
            Way("spindle source", BROKER, "noop", {"columns": "offset,timestamp"}),
            Way("spindle-segments", DISKS, "noop", {"columns": "offset,timestamp"}),
        ),
    ),
    Row(
        "offset-filter",
        "1 % of the rows, by offset",
        20,
        (
            Way("kafka source, where()", BUILT_IN, "offsets_where"),
            Way("kafka source, offset options", BUILT_IN, "offsets_by_options"),
            Way("spindle source, offset options", BROKER, "offsets_by_options"),
            Way("spindle-segments, offset options", DISKS, "offsets_by_options"),
        ),
    ),
    Row(
        "time-filter",
        "1 % of the rows, by timestamp",
        20,
        (
            Way("kafka source, where()", BUILT_IN, "times_where"),
            Way("spindle source, time options", BROKER, "times_by_options"),
            Way("spindle-segments, time options", DISKS, "times_by_options"),
        ),
    ),
    Row(
        "stream",
        "stream with availableNow, 100 B",
        None,
        (
            Way("kafka source", BUILT_IN, "read_stream"),
            Way("spindle source", BROKER, "read_stream"),
        ),
    ),
    Row(
        "sink",
        "write a topic, 100 B",
        None,
        (
            Way("kafka sink", BUILT_IN, "write_topic", {"topic": "written-kafka"}),
            Way("spindle sink, exactly-once", BROKER, "write_topic", {"topic": "written-once"}),
            Way(
                "spindle sink, at-least-once",
                BROKER,
                "write_topic",
                {"topic": "written-at-least", "deliveryGuarantee": "at-least-once"},
            ),
        ),
        OUTPUT,
    ),
    Row("export", "write Parquet, 100 B", 6, _export()),
    Row("export-large-values", "write Parquet, 1 KiB", 3, _export(), LARGE_VALUES),
)
"""The rows in the order of measuring."""
