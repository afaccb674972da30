"""The driver's part: commit a batch when all tasks are done, or abort it when it failed.

It records which transactions make up the batch, and then commits them. After the record, the batch
is going to be complete: by this run, or by the next one that replays the batch.
"""

from collections.abc import Sequence
from dataclasses import replace

from spindle.client.blocking.client import WireClient
from spindle.client.transactions import TransactionEnd
from spindle.pipeline.sink.errors import InputChanged, SinkError
from spindle.pipeline.sink.options import SinkOptions
from spindle.pipeline.sink.results import TaskPlace, WrittenRows
from spindle.pipeline.sink.state import BatchDecision, QueryState, TaskTransaction
from spindle.pipeline.sink.state_store import QueryRegister
from spindle.pipeline.sink.task import register_of


def commit_batch(options: SinkOptions, results: Sequence[WrittenRows | None]) -> None:
    """Make the rows of a batch visible, all of them.

    Raises:
        SinkReplaced: another run of the query has begun since.
        SinkError: a transaction was aborted meanwhile.
        ApiError: the cluster refused.
        ClientError: a broker could not be asked.
    """
    known = [rows for rows in results if rows is not None and rows.place is not None]
    places = [written.place for written in known if written.place is not None]
    written = tuple(written.transaction for written in known if written.transaction is not None)
    if not places or not (written or any(written.replays for written in known)):
        return
    with WireClient(options.client) as client:
        register = register_of(client, options, places[0].query)
        register.check_open(places[0].run, written)
        state = decide(register, places[0], len(results), written)
        complete(register, state)


def abort_batch(options: SinkOptions, results: Sequence[WrittenRows | None]) -> None:
    """Abort the transactions of a batch that failed, unless the batch is decided.

    Spark calls this also after a commit that failed.

    Raises:
        ApiError: the cluster refused.
        ClientError: a broker could not be asked.
    """
    written = [rows.place for rows in results if rows is not None and rows.identity is not None]
    places = [place for place in written if place is not None]
    if not places:
        return
    first = places[0]
    with WireClient(options.client) as client:
        register = register_of(client, options, first.query)
        state = register.settled()
        decision = state.decision_of(first.batch) if state is not None else None
        if decision is not None and decision.run == first.run:
            return
        for place in places:
            register.abort(place.run, place.attempt)
        register.abort_open((first.run,))


def decide(
    register: QueryRegister, place: TaskPlace, tasks: int, written: tuple[TaskTransaction, ...]
) -> QueryState:
    """Record which transactions make up the batch; return the state with the decision.

    Args:
        place: Of any task of the batch.
        tasks: The number of tasks.

    Raises:
        SinkReplaced: another run owns the query.
        InputChanged: the batch is partly committed, and this run has other tasks.
    """

    def change(before: QueryState | None) -> QueryState:
        if before is None:
            raise SinkError(f"the state of query {place.query} disappeared from the cluster")
        before.check_owner(place.run)
        before.check_batch(place.batch)
        decision = before.decision_of(place.batch)
        if decision is None:
            decided = BatchDecision(place.batch, place.run, tasks, written)
            return replace(before, decision=decided)
        if decision.run == place.run or not (decision.is_partial or written):
            return before
        return replace(before, decision=_completed(decision, place, tasks, written))

    return register.change(change)


def _completed(
    decision: BatchDecision, place: TaskPlace, tasks: int, written: tuple[TaskTransaction, ...]
) -> BatchDecision:
    """Return a partial decision with the transactions that take the place of aborted ones."""
    aborted = {transaction.task for transaction in decision.transactions if transaction.is_aborted}
    again = {transaction.task for transaction in written}
    if tasks != decision.tasks or aborted != again:
        raise InputChanged(
            f"batch {place.batch} is partly committed: the tasks {sorted(aborted)} of "
            f"{decision.tasks} have to be written again, and this run has {tasks} tasks and wrote "
            f"{sorted(again)}. The rest cannot be written without repeating or losing rows"
        )
    kept = tuple(transaction for transaction in decision.transactions if transaction.is_committed)
    return BatchDecision(decision.batch, place.run, tasks, (*kept, *written))


def complete(register: QueryRegister, state: QueryState) -> None:
    """Commit the transactions of the last decision; abort all others of this run and before.

    Raises:
        SinkError: a transaction was aborted after the decision.
    """
    decision = state.decision
    assert decision is not None
    open_ones = [
        transaction for transaction in decision.transactions if not transaction.is_committed
    ]
    aborted = [
        transaction.task
        for transaction in open_ones
        if register.finish(decision.run, transaction) is TransactionEnd.ABORTED
    ]
    if aborted:
        raise SinkError(
            f"the transactions of the tasks {aborted} were aborted after batch {decision.batch} "
            "was decided, probably by kafka.transaction.timeout.ms. Start the query again: it "
            "writes these rows again, if they are the same"
        )
    register.abort_open((state.owner, *state.former))
