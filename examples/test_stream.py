"""The test of the streaming job in stream_totals.py, with fixtures of spindle-log[testing].

pytest examples/test_stream.py
"""

from collections.abc import Iterator
from pathlib import Path

import orders
import pytest
import stream_totals
from pyspark.sql import SparkSession

from spindle.testing import Cluster


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = stream_totals.session()
    yield session
    session.stop()


def test_a_second_run_takes_what_is_new(
    kafka_server: Cluster,
    kafka_topic: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orders, "TOPIC", kafka_topic)
    for runs in (1, 2):
        orders.send_orders(kafka_server.bootstrap_servers, 300)
        stream_totals.run(spark, kafka_server.bootstrap_servers, kafka_topic, tmp_path)
        expected = {"ann": 14950 * runs, "bob": 15050 * runs, "cleo": 15150 * runs}
        assert stream_totals.totals(spark, tmp_path) == expected
