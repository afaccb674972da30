"""The configuration of a session by its master, and the cores that a read is planned for."""

import socket
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource

from spindle.pipeline.spark.parallelism import executor_cores, for_cores, with_cores
from spindle.pipeline.spark.settings import (
    check_standalone_master,
    spark_settings,
    submitted_settings,
)


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]"])
def test_a_local_session_uses_the_loopback_interface(master: str) -> None:
    settings = spark_settings(master, {}, ())
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "k8s://https://a:6443"])
def test_executors_of_a_cluster_can_reach_the_driver(master: str) -> None:
    settings = spark_settings(master, {}, ())
    assert "spark.driver.host" not in settings
    assert "spark.driver.bindAddress" not in settings
    assert settings["spark.python.unix.domain.socket.dir"] == "/tmp"


def test_given_settings_win_and_java_options_are_joined() -> None:
    given = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Da=b"}
    settings = spark_settings("local", given, ("-XX:+UseParallelGC",))
    assert settings["spark.ui.enabled"] == "true"
    first, *_, last = settings["spark.driver.extraJavaOptions"].split()
    assert (first, last) == ("-XX:+UseParallelGC", "-Da=b")


def test_the_settings_of_spark_submit_win_over_the_defaults() -> None:
    added = submitted_settings({"spark.a": "1"}, {"spark.ui.enabled": "true", "spark.b": "2"})
    assert "spark.ui.enabled" not in added
    assert added["spark.a"] == "1"
    assert added["spark.python.daemon.module"] == "spindle.pipeline.spark.python_daemon"


def test_a_master_that_is_not_there_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=rf"no Spark master at spark://{address} \("):
            check_standalone_master(f"spark://{address}")
        free.listen()
        check_standalone_master(f"spark://{address}")
        check_standalone_master(f"spark://127.0.0.1:1,{address}")
    with pytest.raises(ValueError, match="want spark://host:port, found 'nowhere'"):
        check_standalone_master("spark://nowhere")
    check_standalone_master("yarn")


class FakeSession:
    """The part of a session that tells its cores."""

    def __init__(self, default_parallelism: int, **conf: str) -> None:
        self.sparkContext = self
        self.defaultParallelism = default_parallelism
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}

    def getConf(self) -> dict[str, str]:
        return self._conf


@pytest.mark.parametrize(
    ("registered", "conf", "cores"),
    [
        (2, {}, 2),
        (2, {"spark_executor_instances": "5", "spark_executor_cores": "4"}, 20),
        (2, {"spark_executor_instances": "5"}, 5),
        (64, {"spark_executor_instances": "5"}, 64),
        (2, {"spark_cores_max": "12"}, 12),
        (
            2,
            {
                "spark_dynamicAllocation_enabled": "true",
                "spark_dynamicAllocation_maxExecutors": "10",
                "spark_executor_cores": "4",
            },
            40,
        ),
    ],
)
def test_cores_are_those_of_the_executors(
    registered: int, conf: dict[str, str], cores: int
) -> None:
    session: Any = FakeSession(registered, **conf)
    assert executor_cores(session) == cores


class Source(DataSource):
    """A source that tells its options."""

    @classmethod
    def name(cls) -> str:
        return "told"


def test_a_source_is_registered_with_the_cores_and_the_option_wins() -> None:
    source = with_cores(Source, 12)
    assert source.name() == "told"
    assert source({}).options == {"parallelism": "12"}
    assert source({"parallelism": "3"}).options == {"parallelism": "3"}
    assert with_cores(Source, None) is Source


def test_an_option_in_any_case_wins_over_the_cores() -> None:
    assert for_cores({"a": "b"}, 5) == {"a": "b", "parallelism": "5"}
    assert for_cores({"Parallelism": "2"}, 5) == {"Parallelism": "2"}
    assert for_cores({}, None) == {}
