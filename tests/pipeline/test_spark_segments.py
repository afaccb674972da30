"""`spindle-segments`, exports and checksums in a Spark session."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from log_directory_files import (
    OTHER_ID,
    ReplicaWriter,
    corrupt_byte,
    format_directory,
    simple_records,
)
from pyspark.errors import AnalysisException
from row_checksum import checksum_of_batches, checksum_of_frame, checksum_of_table

from spindle.columnar.columns import ALL_COLUMNS, KAFKA_COLUMNS
from spindle.columnar.decoder import BatchDecoder
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.pipeline import count_records
from spindle.pipeline.export import (
    ExportProgress,
    ExportRefused,
    ExportResult,
    PortionSize,
    export_delta,
    export_iceberg,
    export_parquet,
    read_delta,
    read_iceberg,
    read_parquet,
)
from spindle.pipeline.sources.segments import PUSHDOWN_CONF
from spindle.pipeline.spark.session import get_spark, register_sources
from spindle.protocol.records.builder import SimpleRecord

# The first session of a machine starts a JVM and compiles for a while.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

KAFKA_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(warehouse),
    }
    session = get_spark("spindle-tests", "local[2]", conf)
    yield session
    session.stop()


class Topic:
    """A topic of two partitions on two directories, 600 records each in segments of 200."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directories = f"{root}/d*"
        self.writers = [
            ReplicaWriter(format_directory(root / f"d{number}"), TopicPartition("flights", number))
            for number in (0, 1)
        ]
        for writer in self.writers:
            for first in (0, 200, 400):
                if first:
                    writer.roll()
                writer.append_records(simple_records(200, first=first), codec=3)
            (writer.directory / ".kafka_cleanshutdown").touch()

    def options(self, **options: object) -> dict[str, str]:
        given = {"logDirs": self.directories, "subscribe": "flights", **options}
        return {name: str(value) for name, value in given.items()}

    def frame(self, spark: Any, **options: object) -> Any:
        reader = spark.read.format("spindle-segments")
        return reader.options(**self.options(**options)).load()

    def batches(self) -> Iterator[Any]:
        """Yield all rows, decoded without Spark."""
        for writer in self.writers:
            decoder = BatchDecoder(writer.partition)
            for segment in sorted(writer.path.glob("*.log")):
                yield from decoder.decode(segment.read_bytes())


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path)


@pytest.mark.full
def test_the_session_is_set_up_for_python_sources(spark: Any) -> None:
    assert get_spark() is spark
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get(PUSHDOWN_CONF) == "false"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert "spindle" not in os.environ.get("JAVA_HOME", ""), "JAVA_HOME is the user's again"
    with pytest.raises(ValueError, match="'LOUD' is none of OFF"):
        get_spark(log_level="LOUD")


def test_rows_have_the_schema_of_the_kafka_source(spark: Any, topic: Topic) -> None:
    frame = topic.frame(spark)
    assert frame.schema == spark.createDataFrame([], KAFKA_SCHEMA).schema
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [
        (partition, offset) for partition in (0, 1) for offset in range(600)
    ]
    assert (rows[0].topic, bytes(rows[0].key), rows[0].timestampType) == ("flights", b"key-0", 0)
    assert rows[0].timestamp.timestamp() == 1000


@pytest.mark.full
def test_headers_and_nulls_are_read(spark: Any, tmp_path: Path) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), TopicPartition("t", 0))
    writer.append_records(
        [SimpleRecord(None, None, -1), SimpleRecord(b"", b"v", 5, [("a", b"x"), ("b", None)])]
    )
    reader = spark.read.format("spindle-segments").option("logDirs", f"{tmp_path}/d1")
    frame = reader.option("subscribe", "t").option("includeHeaders", "true").load()
    assert frame.schema.simpleString().endswith("headers:array<struct<key:string,value:binary>>>")
    first, second = frame.orderBy("offset").collect()
    assert (first.key, first.value, first.headers) == (None, None, None)
    assert (bytes(second.key), [tuple(header) for header in second.headers]) == (
        b"",
        [("a", b"x"), ("b", None)],
    )
    micros = frame.selectExpr("unix_micros(timestamp) as micros").orderBy("micros").collect()
    assert [row.micros for row in micros] == [-1000, 5000]


def test_decoded_values_have_the_declared_columns(spark: Any, tmp_path: Path) -> None:
    """Spark refuses Arrow columns whose types are not exactly those of the declared schema."""
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), TopicPartition("flights", 0))
    value = (
        b'{"n": 1, "tags": ["a", null], "at": "2020-01-01T00:00:00Z", "day": "2020-01-02", '
        b'"m": {"k": {"x": 1.5}}, "price": 1.25, "s": {"l": [{"y": "2020-01-01T01:00:00"}]}}'
    )
    writer.append_records([SimpleRecord(None, data, 1_000_000) for data in (value, b"{", None)])
    (writer.directory / ".kafka_cleanshutdown").touch()
    columns = (
        "n TINYINT, tags ARRAY<STRING>, at TIMESTAMP, day DATE, m MAP<STRING, STRUCT<x: DOUBLE>>, "
        "price DECIMAL(10, 2), s STRUCT<l: ARRAY<STRUCT<y: TIMESTAMP_NTZ>>>"
    )
    for layout, where in (("columns", "{}"), ("struct", "value.{}")):
        reader = spark.read.format("spindle-segments").options(
            logDirs=f"{tmp_path}/d1", subscribe="flights", valueFormat="json", valueSchema=columns,
            valueLayout=layout, badRecords="permissive", columns="value,offset",
        )  # fmt: skip
        frame = reader.load().orderBy("offset")
        wanted = ("n", "tags[0]", "at", "day", "m['k'].x", "price", "s.l[0].y")
        rows = frame.selectExpr(*(f"string({where.format(name)})" for name in wanted)).collect()
        assert [tuple(row) for row in rows] == [
            ("1", "a", "2020-01-01 00:00:00", "2020-01-02", "1.5", "1.25", "2020-01-01 01:00:00"),
            *[(None,) * 7] * 2,
        ]
        assert [row.value_error is None for row in frame.collect()] == [True, False, True]


@pytest.mark.full
def test_wanted_columns_and_sql(spark: Any, topic: Topic) -> None:
    assert topic.frame(spark, columns="offset,partition").columns == ["offset", "partition"]
    spark.sql(
        "create or replace temporary view flights using `spindle-segments` options "
        f"(logDirs '{topic.directories}', subscribe 'flights', columns 'offset')"
    )
    assert spark.sql("select count(*), max(offset) from flights").first()[:] == (1200, 599)


@pytest.mark.full
def test_one_partition_is_split_over_tasks(spark: Any, topic: Topic) -> None:
    frame = topic.frame(spark, taskBytes=8000)
    assert frame.rdd.getNumPartitions() >= 4
    rows = frame.select("partition", "offset").collect()
    assert len(set(rows)) == len(rows) == 1200
    assert topic.frame(spark).rdd.getNumPartitions() == 1


@pytest.mark.full
def test_batches_are_rows_and_count_the_records(spark: Any, topic: Topic) -> None:
    frame = spark.read.format("spindle-batches").options(**topic.options()).load()
    assert frame.schema.simpleString().startswith("struct<topic:string,partition:int,broker:int,")
    assert frame.count() == 2 * 60
    totals = frame.groupBy("partition", "codec").sum("recordCount").orderBy("partition")
    assert [tuple(row) for row in totals.collect()] == [(0, "lz4", 600), (1, "lz4", 600)]
    assert count_records(spark, topic.options()) == 1200
    assert count_records(spark, topic.options(startingTimestamp=1_000_150)) == 900
    with pytest.raises(Exception, match="'value' is not a column"):
        spark.read.format("spindle-batches").options(**topic.options(columns="value")).load()


@pytest.mark.full
def test_pushed_filters_are_exact_and_nothing_else_is_read(spark: Any, topic: Topic) -> None:
    """Partition 0 is damaged: a read succeeds only if the filter keeps it away from there."""
    for segment in topic.writers[0].path.glob("*.log"):
        corrupt_byte(segment, 100)
    spark.conf.set(PUSHDOWN_CONF, "true")
    register_sources(spark)
    try:
        for condition, expected in (
            ("partition = 1 and offset >= 590", 10),
            ("topic = 'flights' and partition in (1) and offset between 100 and 104", 5),
            ("partition = 1 and timestamp >= timestamp_millis(1000590)", 10),
            ("partition = 1 and timestamp < timestamp_millis(1000003)", 3),
            ("partition = 1 and offset = 7 and key = 'key-0'", 1),
            ("topic = 'other'", 0),
        ):
            assert topic.frame(spark).where(condition).count() == expected, condition
    finally:
        spark.conf.set(PUSHDOWN_CONF, "false")
        register_sources(spark)


@pytest.mark.full
def test_queries_of_one_frame_do_not_disturb_each_other(spark: Any, topic: Topic) -> None:
    """With filter pushdown they would, so a session has it off."""
    frame = topic.frame(spark)
    few, fewer = frame.where("partition = 1 and offset < 10"), frame.where("offset < 2")
    assert (few.count(), frame.count(), fewer.count()) == (10, 1200, 4)
    assert few.union(fewer).count() == 14


@pytest.mark.full
def test_bounds_on_times_skip_what_lies_before_them(spark: Any, topic: Topic) -> None:
    for writer in topic.writers:
        corrupt_byte(writer.path / "00000000000000000000.log", 100)
    bounds = {"minTimestamp": 1_000_300, "maxTimestamp": 1_000_449}
    assert topic.frame(spark, **bounds).count() == 300
    with pytest.raises(Exception, match=r"00000000000000000000\.log .*checksum"):
        topic.frame(spark).count()


def test_errors_name_the_option(spark: Any, topic: Topic) -> None:
    with pytest.raises(Exception, match="option logDirs is missing"):
        spark.read.format("spindle-segments").option("subscribe", "t").load()
    with pytest.raises(Exception, match="not in the log directories"):
        topic.frame(spark, subscribe="nothing").count()


def test_an_export_is_complete_and_idempotent(spark: Any, topic: Topic) -> None:
    table = topic.root / "table"
    seen: list[ExportProgress] = []
    first = export_delta(spark, table, topic.options(taskBytes=8000), progress=seen.append)
    assert (first.rows, first.version) == (1200, 0)
    assert [(partition.start_offset, partition.end_offset) for partition in first.partitions] == [
        (0, 600)
    ] * 2
    assert (seen[-1].tasks_done, seen[-1].rows) == (seen[-1].tasks_total, 1200)

    expected = checksum_of_batches(topic.batches())
    assert checksum_of_table(table) == expected
    assert checksum_of_frame(topic.frame(spark)) == expected

    again = export_delta(spark, table, topic.options())
    assert again.is_empty
    assert again.version == 0
    topic.writers[1].append_records(simple_records(30, first=600))
    more = export_delta(spark, table, topic.options())
    assert [(partition.partition.partition, partition.rows) for partition in more.partitions] == [
        (1, 30)
    ]
    assert checksum_of_table(table) == checksum_of_batches(topic.batches())
    assert read_delta(spark, table).count() == 1230
    assert read_delta(spark, table, version=0).count() == 1200


EXPORTS: dict[str, tuple[Callable[..., ExportResult], Callable[..., Any]]] = {
    "delta": (export_delta, read_delta),
    "iceberg": (export_iceberg, read_iceberg),
    "parquet": (export_parquet, read_parquet),
}


@pytest.mark.full
@pytest.mark.parametrize("table_format", EXPORTS)
def test_the_session_reads_what_it_exported(spark: Any, topic: Topic, table_format: str) -> None:
    export, read = EXPORTS[table_format]
    table = topic.root / "warehouse" / "flights"
    exported = export(
        spark,
        table,
        topic.options(),
        partition_by="partition,hour",
        portion=PortionSize(offsets=500),
    )
    assert (exported.rows, exported.portions) == (1200, 3)
    rows = read(spark, table)
    assert rows.columns == [*KAFKA_COLUMNS, "date", "hour"]
    assert rows.where("partition = 1 and date = '1970-01-01' and hour = 0").count() == 600
    assert checksum_of_frame(rows) == checksum_of_frame(topic.frame(spark))
    if table_format == "parquet":
        assert spark.read.parquet(str(table)).count() == 1200


@pytest.mark.full
def test_a_failed_export_leaves_the_table_as_it_was(spark: Any, topic: Topic) -> None:
    """The one task has written the file of the first partition when the second one fails."""
    table = topic.root / "table"
    export_delta(spark, table, topic.options(columns=",".join(ALL_COLUMNS)))
    before = sorted(path.name for path in table.iterdir())
    for writer in topic.writers:
        for first in (600, 700):
            writer.roll()
            writer.append_records(simple_records(100, first=first))
    corrupt_byte(topic.writers[1].path / "00000000000000000600.log", 100)
    with pytest.raises(Exception, match="checksum"):
        export_delta(spark, table, topic.options(columns=",".join(ALL_COLUMNS)))
    assert DeltaTable(table).version() == 0
    assert sorted(path.name for path in table.iterdir()) == before


@pytest.mark.full
def test_a_topic_that_was_created_again_is_not_mixed_in_silently(spark: Any, topic: Topic) -> None:
    table = topic.root / "table"
    export_delta(spark, table, topic.options())
    other = Topic(topic.root / "later")
    for writer in other.writers:
        text = (writer.path / "partition.metadata").read_text().split("topic_id")[0]
        (writer.path / "partition.metadata").write_text(f"{text}topic_id: ZWZnaGlqa2xtbm9wcXJzdA")
    with pytest.raises(ExportRefused, match="ZWZnaGlqa2xtbm9wcXJzdA"):
        export_delta(spark, table, other.options())
    added = export_delta(spark, table, other.options(), recreated_topic="append")
    assert {partition.topic_id for partition in added.partitions} == {OTHER_ID}
    assert DeltaTable(table).count() == 2400


@pytest.mark.full
def test_a_table_is_read_with_its_columns_and_text(spark: Any, topic: Topic) -> None:
    table = topic.root / "of {1} [2] and 3*"
    options = topic.options(columns="offset,key,timestamp,value,headers")
    export_delta(spark, table, options, key="string")
    rows = read_delta(spark, table)
    assert rows.schema.simpleString() == (
        "struct<offset:bigint,key:string,timestamp:timestamp,value:binary,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert rows.where("offset = 1").select("key").distinct().collect() == [("key-1",)]
    assert (
        checksum_of_frame(rows) == checksum_of_table(table) == checksum_of_frame(topic.frame(spark))
    )


@pytest.mark.full
def test_a_table_without_rows_has_its_columns(spark: Any, topic: Topic) -> None:
    table = topic.root / "table"
    export_delta(spark, table, topic.options(columns="offset"))
    DeltaTable(table).delete()
    rows = read_delta(spark, table)
    assert (rows.columns, rows.collect()) == (["offset"], [])


@pytest.mark.full
def test_text_that_is_none_fails_the_export_and_names_the_record(spark: Any, topic: Topic) -> None:
    topic.writers[1].append_records([SimpleRecord(b"\xff", b"v", 0)])
    table = topic.root / "table"
    with pytest.raises(Exception, match="flights-1 offset 600 cannot be decoded: key: not UTF-8"):
        export_delta(spark, table, topic.options(), key="string")
    assert list(table.iterdir()) == []


def test_tables_that_cannot_be_read_are_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing holds no Delta table"):
        read_delta(spark, tmp_path / "nothing")
    with pytest.raises(ValueError, match="local and shared file systems only"):
        read_delta(spark, "s3://bucket/x")
    plain = {"a": [1, 2], "b": [1, 1]}
    write_deltalake(tmp_path / "parts", pa.table(plain), partition_by=["b"])
    assert read_delta(spark, tmp_path / "parts").columns == ["a", "b"]
    with pytest.raises(ValueError, match="version 7 of the table"):
        read_delta(spark, tmp_path / "parts", version=7)
    write_deltalake(
        tmp_path / "vectors", pa.table(plain), configuration={"delta.enableDeletionVectors": "true"}
    )
    with pytest.raises(ValueError, match=r"vectors wants a reader of version 3 .*deletionVectors"):
        read_delta(spark, tmp_path / "vectors")


def test_wrong_arguments_of_an_export(spark: Any, topic: Topic) -> None:
    with pytest.raises(ValueError, match="'brotli' is none of snappy"):
        export_delta(spark, topic.root / "x", topic.options(), compression="brotli")
    with pytest.raises(ValueError, match="local and shared file systems only"):
        export_delta(spark, "s3://bucket/x", topic.options())
    corrupt = topic.writers[0].path / "partition.metadata"
    corrupt.write_text("?")
    with pytest.raises(CorruptLog, match="partition metadata"):
        export_delta(spark, topic.root / "x", topic.options())


def test_delta_without_its_jar_names_what_writes_tables(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r"export_delta.*follow=True.*read_delta"):
        spark.range(1).write.format("delta").mode("append").save(str(tmp_path / "t"))


@pytest.mark.parametrize(
    ("export", "read"),
    [(export_delta, read_delta), (export_parquet, read_parquet), (export_iceberg, read_iceberg)],
)
def test_every_name_and_partition_value_comes_back(
    spark: Any, tmp_path: Path, export: Any, read: Any
) -> None:
    """`a.b` is not a field b of the struct a."""
    names = ("service.name", "a`b", "a b,c;", "ä", "select", "x.y")
    texts = ("%41", "a=b/c", " ", "..", "007", "ä", None)
    rows = [{**dict.fromkeys(names, n), "x": {"z": n}, "p.q": p} for n, p in enumerate(texts)]
    directory = format_directory(tmp_path / "d")
    values = [SimpleRecord(b"k", json.dumps(row).encode(), n) for n, row in enumerate(rows)]
    ReplicaWriter(directory, TopicPartition("t", 0)).append_records(values)
    (directory / ".kafka_cleanshutdown").touch()
    options = {
        "logDirs": str(directory), "subscribe": "t", "columns": "value", "valueFormat": "json",
        "valueSchema": "infer",
    }  # fmt: skip
    table = tmp_path / "a table"
    assert export(spark, table, options, partition_by="p.q").rows == len(rows)
    read_rows = [row.asDict(recursive=True) for row in read(spark, table).collect()]
    assert sorted(read_rows, key=lambda row: row["ä"]) == rows
