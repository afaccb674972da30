"""The source `spindle` inside Spark, against a small broker."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession
from wire_broker import WireBroker

from spindle.pipeline.spark.session import get_spark
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.records.batch import read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch

# The first session of a machine starts a JVM and compiles for a while.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

README = Path(__file__).parents[2] / "README.md"
TIME_MS = 1_700_000_000_000
RECORDS_PER_PARTITION = 1000


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    running_before = SparkSession.getActiveSession()
    session = get_spark("test-broker-source", master="local[2]")
    yield session
    if running_before is None:
        session.stop()


@pytest.fixture
def broker() -> Iterator[WireBroker]:
    with WireBroker() as running:
        for partition in (0, 1):
            log = running.log("a", partition)
            for base in range(0, RECORDS_PER_PARTITION, 100):
                records = [
                    SimpleRecord(b"k%d" % n, b"v%d" % n, TIME_MS + n, (("h", b"%d" % partition),))
                    for n in range(base, base + 100)
                ]
                log.append(build_batch(records, base))
        yield running


@pytest.fixture
def numbers() -> Iterator[WireBroker]:
    """Make the topic that README's tour produces."""
    with WireBroker() as running:
        records = [SimpleRecord(b"%d" % (n % 10), b"%d" % n, TIME_MS) for n in range(1000)]
        running.log("numbers", 0).append(build_batch(records, 0))
        yield running


def load(spark: Any, broker: WireBroker, **options: str) -> Any:
    reader = spark.read.format("spindle").option("kafka.bootstrap.servers", broker.address)
    selection = {} if "assign" in options else {"subscribe": "a"}
    return reader.options(**(selection | options)).load()


def assert_is_short(error: BaseException) -> None:
    """Check that Spark's report ends with a sentence, behind two lines of code at most."""
    lines = [line for line in str(error).splitlines() if line.strip(" .")]
    if "SQLSTATE" in lines[-1]:
        lines.pop()
    assert not lines[-1].startswith(" ")
    assert sum(line.startswith("  File ") for line in lines) <= 2


@pytest.mark.full
def test_the_source_returns_kafkas_schema_and_rows(spark: Any, broker: WireBroker) -> None:
    rows = load(spark, broker, includeHeaders="true")
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    collected = sorted(rows.collect(), key=lambda row: (row.partition, row.offset))
    assert len(collected) == 2 * RECORDS_PER_PARTITION
    row = collected[RECORDS_PER_PARTITION + 7]
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"k7", b"v7", "a")
    assert (row.partition, row.offset, row.timestampType) == (1, 7, 0)
    assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp((TIME_MS + 7) / 1000, UTC)
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"1")]


@pytest.mark.full
def test_no_process_looks_for_installed_sources(spark: Any, broker: WireBroker) -> None:
    load(spark, broker)
    lines = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            lines.append(" ".join(child.cmdline()))
    assert any("pyspark.sql.worker.create_data_source" in line for line in lines)
    assert not any("lookup_data_sources" in line for line in lines)


@pytest.mark.full
def test_options_decide_columns_and_tasks(spark: Any, broker: WireBroker) -> None:
    rows = load(spark, broker, columns="offset", minPartitions="4")
    assert rows.columns == ["offset"]
    assert rows.rdd.getNumPartitions() == 4
    assert rows.distinct().count() == RECORDS_PER_PARTITION


@pytest.mark.full
def test_an_empty_range_returns_no_rows(spark: Any, broker: WireBroker) -> None:
    assert load(spark, broker, endingOffsets='{"a": {"0": 0, "1": 0}}').count() == 0


@pytest.mark.full
def test_bounds_reach_the_broker(spark: Any, broker: WireBroker) -> None:
    rows = load(spark, broker, assign='{"a": [1]}', minTimestamp=str(TIME_MS + 250))
    assert rows.count() == RECORDS_PER_PARTITION - 250
    fetched = [request.topics[0].partitions[0] for request in broker.requests[FetchRequest]]
    assert (fetched[0].partition, fetched[0].fetch_offset) == (1, 200)


@pytest.mark.full
def test_every_action_reads_to_the_end_of_the_log(spark: Any, broker: WireBroker) -> None:
    log = broker.log("a", 2)
    rows = load(spark, broker)
    assert rows.count() == 2 * RECORDS_PER_PARTITION
    log.append(build_batch([SimpleRecord(b"k", b"v", TIME_MS)]))
    assert rows.count() == 2 * RECORDS_PER_PARTITION + 1


@pytest.mark.full
def test_a_limit_stops_early(spark: Any, broker: WireBroker) -> None:
    assert len(load(spark, broker, fetchMaxBytes="1024", minPartitions="2").limit(3).collect()) == 3
    assert len(broker.requests[FetchRequest]) < 2 * RECORDS_PER_PARTITION / 100


@pytest.mark.full
def test_a_wrong_option_is_refused_when_the_read_is_made(spark: Any, broker: WireBroker) -> None:
    with pytest.raises(Exception, match="option minPartitions: 'x', want an integer"):
        load(spark, broker, minPartitions="x")
    # Spark does not tell a source in load() whether it is a batch or a stream.
    rows = load(spark, broker, startingOffsets="latest")
    with pytest.raises(Exception, match="startingOffsets: 'latest' makes no sense") as raised:
        rows.count()
    assert_is_short(raised.value)


@pytest.mark.full
def test_lost_records_fail_the_job_with_advice(spark: Any, broker: WireBroker) -> None:
    broker.log("a", 0).log_start_offset = 500
    given = {"startingOffsets": '{"a": {"0": 10, "1": 0}}'}
    with pytest.raises(Exception, match="offsets 10 to 499 of a-0 cannot be read") as raised:
        load(spark, broker, **given).count()
    assert "failOnDataLoss=false" in str(raised.value)
    assert_is_short(raised.value)
    assert load(spark, broker, failOnDataLoss="false", **given).count() == 1500


@pytest.mark.full
def test_a_stream_runs_and_resumes(spark: Any, broker: WireBroker, tmp_path: Path) -> None:
    def run(**options: str) -> Any:
        stream = spark.readStream.format("spindle").option("subscribe", "a")
        stream = stream.option("kafka.bootstrap.servers", broker.address).options(**options)
        output = stream.load().writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        output = output.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = output.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    first = run(startingOffsets="earliest", maxOffsetsPerTrigger="1500")
    assert [progress.numInputRows for progress in first.recentProgress] == [1500, 500]
    (source,) = first.recentProgress[0].sources
    assert json.loads(source.latestOffset) == {"a": {"0": 1000, "1": 1000}}
    assert json.loads(source.endOffset)["a"] == {"0": 750, "1": 750}
    broker.log("a", 2).append(build_batch([SimpleRecord(b"k", b"v", TIME_MS)]))
    run()
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.count() == rows.distinct().count() == 2001
    broker.topic_ids["a"] = bytes(15) + b"\x77"
    with pytest.raises(Exception, match="topic 'a' was deleted and created again"):
        run(**{"fetchOffset.numRetries": "0"})


@pytest.mark.full
def test_batch_headers_are_not_read_as_a_stream(spark: Any, tmp_path: Path) -> None:
    stream = spark.readStream.format("spindle-batches").option("subscribe", "a")
    query = stream.option("logDirs", str(tmp_path)).load().writeStream.format("noop").start()
    with pytest.raises(Exception, match=r'format\("spindle-batches"\) reads batches') as raised:
        query.awaitTermination()
    assert 'spark.readStream.format("spindle")' in str(raised.value)
    assert "UnboundLocalError" not in str(raised.value)


@pytest.mark.full
def test_a_write_to_log_directories_says_what_to_use_instead(spark: Any, tmp_path: Path) -> None:
    rows = spark.sql("select cast('v' as binary) as value")
    message = r'format\("spindle-segments"\) cannot be written to.*format\("spindle"\)'
    with pytest.raises(Exception, match=message):
        rows.write.format("spindle-segments").mode("append").save()
    rate = spark.readStream.format("rate").load().writeStream.format("spindle-segments")
    query = rate.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match=message):
        query.awaitTermination()


@pytest.mark.full
def test_a_wrong_write_is_refused_before_any_task_runs(spark: Any, broker: WireBroker) -> None:
    def write(rows: Any, mode: str = "append", **options: str) -> None:
        writer = rows.write.format("spindle").option("kafka.bootstrap.servers", broker.address)
        writer.options(**options).mode(mode).save()

    with pytest.raises(Exception, match="column value has the type bigint, want string or binary"):
        write(spark.sql("select id as value from range(1)"), topic="a")
    rows = spark.sql("select 'v' as value")
    with pytest.raises(Exception, match="topic 'nope' does not exist in cluster wire-broker"):
        write(rows, topic="nope")
    with pytest.raises(Exception, match="only output mode append"):
        write(rows, mode="overwrite", topic="a")


@pytest.mark.full
def test_rows_are_written_without_transactions_if_wanted(spark: Any) -> None:
    with WireBroker() as broker:
        log = broker.log("out", 0)
        rows = spark.sql("select cast(id as string) as value, 'other' as more from range(500)")
        given = {"kafka.bootstrap.servers": broker.address, "topic": "out", "kafka.acks": "1"}
        writer = rows.write.format("spindle").options(**given)
        writer.option("deliveryGuarantee", "at-least-once").mode("append").save()
        assert sum(read_header(batch).record_count for batch in log.batches) == 500


@pytest.mark.full
def test_the_export_of_the_readme_works_when_pasted(
    spark: Any, numbers: WireBroker, tmp_path: Path
) -> None:
    blocks = README.read_text().split("```python\n")[1:]
    (block,) = (text.split("```")[0] for text in blocks if "export_delta" in text)
    block = block.replace("127.0.0.1:9092", numbers.address)
    block = block.replace("/tmp/numbers", str(tmp_path / "numbers"))
    names: dict[str, Any] = {"spark": spark}
    exec(block, names)
    table = names["read_delta"](spark, tmp_path / "numbers")
    assert table.count() == 1000
    assert table.columns == ["key", "value", "partition", "offset"]
    assert table.where("key = '7'").count() == 100
