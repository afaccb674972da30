"""The writers that Spark calls: for a batch write, and for each micro-batch of a stream.

Spark constructs the stream writer when it plans a micro-batch, and again to commit it. It gives
neither of them the id of the query; the tasks find it in their local properties and hand it to the
driver with their results.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spindle.client.blocking.client import WireClient
from spindle.pipeline.options.unknown import warn_of_unknown_options
from spindle.pipeline.sink.driver import abort_batch, commit_batch
from spindle.pipeline.sink.errors import SinkError
from spindle.pipeline.sink.options import (
    DEFAULT_STATE_TOPIC,
    WRITE_OPTIONS,
    DeliveryGuarantee,
    SinkOptions,
    sink_options,
)
from spindle.pipeline.sink.results import TaskPlace
from spindle.pipeline.sink.rows import check_columns
from spindle.pipeline.sink.task import partition_count, write_at_least_once, write_in_transaction
from spindle.pipeline.user_errors import PlainErrors

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"
_RUN_CHARACTERS: Final = 16


def batch_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Check options, columns and topic of a batch write; return its writer.

    Raises:
        ValueError: an option or a column cannot be used.
        SinkError: the topic does not exist.
        ClientError: the cluster cannot be reached.
    """
    return TopicWriter(_checked(given, schema, overwrite))


def stream_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Check options, columns and topic of a streaming write; return the writer of a micro-batch.

    Raises:
        ValueError: an option or a column cannot be used.
        SinkError: the topic does not exist.
        ClientError: the cluster cannot be reached.
    """
    if any(key.lower() == "writeid" for key in given):
        raise ValueError("option writeId is for batch writes; a stream has its checkpoint")
    return TopicStreamWriter(_checked(given, schema, overwrite))


def _checked(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    options = sink_options(given)
    warn_of_unknown_options(given, WRITE_OPTIONS)
    if overwrite:
        raise ValueError(
            "only output mode append is supported: records of a topic stay as they are"
        )
    columns = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    check_columns(columns, options.topic)
    topics = [] if options.topic is None else [options.topic]
    if options.state_topic != DEFAULT_STATE_TOPIC:  # Brokers make that one when it is needed.
        topics.append(options.state_topic)
    if topics:
        with WireClient(options.client) as client:
            for topic in topics:
                partition_count(client, topic)
    return options


class TopicWriter(PlainErrors, DataSourceArrowWriter):
    """Writes a DataFrame to topics, as one batch with the number 0."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid.uuid4().hex[:_RUN_CHARACTERS]
        self._query = f"write-{options.write_id or uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        if self._options.guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
            return write_at_least_once(self._options, iterator)
        context = _task_context()
        place = _place(context, self._query, self._run, 0)
        return write_in_transaction(self._options, place, iterator)

    def commit(self, messages: list[Any]) -> None:
        """Make all rows visible."""
        commit_batch(self._options, messages)

    def abort(self, messages: list[Any]) -> None:
        """Abort the rows of the tasks that had finished."""
        abort_batch(self._options, messages)


class TopicStreamWriter(PlainErrors, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream to topics."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        if self._options.guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
            return write_at_least_once(self._options, iterator)
        context = _task_context()
        properties = [context.getLocalProperty(name) for name in (_QUERY_ID, _RUN_ID, _BATCH_ID)]
        if None in properties:
            raise SinkError(f"Spark does not pass query, run and batch to its tasks: {properties}")
        query, run, batch = map(str, properties)
        run = uuid.UUID(run).hex[:_RUN_CHARACTERS]
        return write_in_transaction(
            self._options, _place(context, query, run, int(batch)), iterator
        )

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Make all rows of a micro-batch visible."""
        commit_batch(self._options, messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Abort the rows of the tasks that had finished."""
        abort_batch(self._options, messages)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are written in the tasks of Spark only")
    return context


def _place(context: TaskContext, query: str, run: str, batch: int) -> TaskPlace:
    task = context.partitionId()
    attempt = f"{task}-{context.attemptNumber()}"
    return TaskPlace(query, run, batch, task, attempt, context.taskAttemptId())
