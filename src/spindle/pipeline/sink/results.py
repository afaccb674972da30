"""The result of a task for the driver, and its place in the query."""

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from spindle.client.transactions import ProducerIdentity
from spindle.pipeline.sink.state import RowsDigest, TaskTransaction


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The place of a task attempt in its query.

    Attributes:
        query: Stays the same when the query starts again from its checkpoint.
        run: Differs from start to start.
        attempt: Differs between the attempts of a task in one batch, and from those of the batch
            before; the batch after the next uses it again, and so does a repeated stage.
        attempt_id: Differs between all attempts of all tasks of the run.
    """

    query: str
    run: str
    batch: int
    task: int
    attempt: str
    attempt_id: int


@dataclass
class WrittenRows(WriterCommitMessage):
    """The rows that a task wrote.

    Attributes:
        place: None if the rows were written without a transaction.
        identity: The producer of the open transaction; None if the task wrote nothing.
        replays: True if the batch was decided by an earlier run.
    """

    place: TaskPlace | None
    identity: ProducerIdentity | None
    digest: RowsDigest
    replays: bool = False

    @property
    def transaction(self) -> TaskTransaction | None:
        """The open transaction, None if there is none."""
        if self.place is None or self.identity is None:
            return None
        return TaskTransaction(self.place.task, self.place.attempt, self.identity, self.digest)
