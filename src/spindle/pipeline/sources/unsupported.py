"""Errors for what a source does not support: a streaming read of batch headers, writes, and the
format `delta` in a session without its jar.

A Python source learns that it is read as a stream, or written to, only when the query starts; it
cannot tell in `load()`. If `streamReader` fails, PySpark reports an error of its own instead. So
`streamReader` returns a reader whose first call fails with a sentence that helps.
"""

from typing import Any, Final, NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spindle.pipeline.spark.python_daemon import quiet_planning
from spindle.pipeline.user_errors import PlainErrors

quiet_planning()
_NO_STREAM: Final = (
    "{name} reads batches only (spark.read). For a stream of records: "
    'spark.readStream.format("spindle"), or "spindle-segments"'
)
_NO_WRITE: Final = (
    "{name} cannot be written to. To produce records: "
    'write.format("spindle") or writeStream.format("spindle")'
)


_NO_DELTA: Final = (
    "this session has no jar of Delta Lake, and tables of topics need none: "
    "export_delta(spark, path, options, follow=True) writes what topics have and keeps up with "
    "them, without follow=True it is one such run, and read_delta(spark, path) reads a table "
    "(spindle.pipeline.export; docs/guide/export.md)"
)
_DELTA_CLASS: Final = "org.apache.spark.sql.delta.sources.DeltaDataSource"


class BatchReadOnly(PlainErrors, DataSource):
    """A data source for `spark.read`; streams and writes fail with one sentence."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RefusedStream(self.name())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _refuse(_NO_WRITE, self.name())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _refuse(_NO_WRITE, self.name())


class DeltaWithoutJar(DataSource):
    """`format("delta")` where Spark has no such source: it names what writes and reads tables."""

    def __init__(self, options: dict[str, str]) -> None:
        raise PySparkNotImplementedError(_NO_DELTA)

    @classmethod
    def name(cls) -> str:
        return "delta"


def explain_delta(spark: SparkSession) -> None:
    """Register an error for `format("delta")`, unless the session has the jar of Delta Lake."""
    try:
        jvm: Any = spark.sparkContext._jvm
        utils = jvm.org.apache.spark.util.Utils
        has_jar = utils.classIsLoadable(_DELTA_CLASS)
    except (Py4JError, TypeError, AttributeError):
        # A version of Spark that keeps this elsewhere has its own error.
        return
    if not has_jar:
        spark.dataSource.register(DeltaWithoutJar)


class RefusedStream(DataSourceStreamReader):
    """A stream reader whose every call fails; `name` is that of the format."""

    def __init__(self, name: str) -> None:
        self._name = name

    def initialOffset(self) -> NoReturn:
        _refuse(_NO_STREAM, self._name)

    def latestOffset(self, *_: Any) -> NoReturn:
        _refuse(_NO_STREAM, self._name)

    def read(self, partition: Any) -> NoReturn:
        _refuse(_NO_STREAM, self._name)


def _refuse(sentence: str, name: str) -> NoReturn:
    text = sentence.format(name=f'format("{name}")')
    raise PySparkNotImplementedError(text)
