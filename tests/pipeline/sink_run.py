"""A query that writes to a topic, without Spark: its tasks and its driver as functions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from spindle.client.admin.transactions import list_transactions
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.pipeline.brokers.options import broker_read_options
from spindle.pipeline.sink.driver import abort_batch, commit_batch
from spindle.pipeline.sink.options import SinkOptions, sink_options
from spindle.pipeline.sink.results import TaskPlace, WrittenRows
from spindle.pipeline.sink.state_store import QueryRegister
from spindle.pipeline.sink.task import register_of, write_in_transaction
from spindle.pipeline.sources.broker import BrokerReader

Rows = Sequence[str]
_ATTEMPT_IDS = count()


class Crash(BaseException):
    """The process ends here."""


def crash_after(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, calls: int) -> None:
    """Raise Crash instead of the call after so many calls of a method."""
    original = getattr(owner, method)
    left = [calls]

    def counted(*arguments: Any, **named: Any) -> Any:
        if left[0] == 0:
            raise Crash
        left[0] -= 1
        return original(*arguments, **named)

    monkeypatch.setattr(owner, method, counted)


@dataclass(frozen=True)
class SinkRun:
    """One start of a query."""

    bootstrap: str
    topic: str
    query: str
    run: str
    given: tuple[tuple[str, str], ...] = ()

    @property
    def options(self) -> SinkOptions:
        return sink_options(
            {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, **dict(self.given)}
        )

    def restarted(self, run: str) -> "SinkRun":
        """Return the next start of the query."""
        return replace(self, run=run)

    def with_options(self, **given: str) -> "SinkRun":
        """Return this run with `kafka.` properties, with underscores for dots."""
        named = tuple((f"kafka.{key.replace('_', '.')}", value) for key, value in given.items())
        return replace(self, given=(*self.given, *named))

    def task(self, batch: int, task: int, rows: Rows, attempt: int = 0) -> WrittenRows:
        """Write the rows of one task."""
        return self.task_of(batch, task, [arrow_rows(rows)], attempt)

    def task_of(
        self, batch: int, task: int, rows: Iterable[pa.RecordBatch], attempt: int = 0
    ) -> WrittenRows:
        """Write the rows of one task, as they come."""
        attempt_id = next(_ATTEMPT_IDS)
        place = TaskPlace(self.query, self.run, batch, task, f"{task}-{attempt}", attempt_id)
        return write_in_transaction(self.options, place, rows)

    def tasks(self, batch: int, parts: Sequence[Rows]) -> list[WrittenRows | None]:
        """Write the rows of all tasks of a batch."""
        return [self.task(batch, number, rows) for number, rows in enumerate(parts)]

    def commit(self, results: Sequence[WrittenRows | None]) -> None:
        commit_batch(self.options, results)

    def abort(self, results: Sequence[WrittenRows | None]) -> None:
        abort_batch(self.options, results)

    def batch(self, batch: int, parts: Sequence[Rows]) -> None:
        """Run a whole batch, as Spark does: a failed one is aborted."""
        results = self.tasks(batch, parts)
        try:
            self.commit(results)
        except Exception:
            self.abort(results)
            raise

    def committed(self) -> list[str]:
        """Return the committed values of the topic, sorted; wait for no open transaction."""
        options = broker_read_options(
            {
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "isolationLevel": "read_committed",
                "columns": "value",
            }
        )
        reader = BrokerReader(options)
        values: list[str] = []
        for partition in reader.partitions():
            for batch in reader.read(partition):
                values += [value.decode() for value in batch.column("value").to_pylist()]
        return sorted(values)

    def open_transactions(self) -> list[str]:
        """Return the ids of the query's open transactions."""
        with WireClient(client_settings({"bootstrap.servers": self.bootstrap})) as client:
            return [
                transaction.transactional_id
                for transaction in list_transactions(client, states=["Ongoing"])
                if self.query in transaction.transactional_id
            ]

    def ask_register(self, question: Callable[[QueryRegister], Any]) -> Any:
        """Call a function with the register of the query."""
        with WireClient(self.options.client) as client:
            return question(register_of(client, self.options, self.query))


def arrow_rows(rows: Rows) -> pa.RecordBatch:
    """Return rows with these values, each the key of its row as well."""
    return pa.record_batch(
        {"key": pa.array(rows, pa.string()), "value": pa.array(rows, pa.string())}
    )
