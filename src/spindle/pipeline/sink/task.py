"""A task's part: find out whether its rows are written already, else write them.

In exactly-once mode the transaction stays open: the driver commits it when all tasks are done.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from spindle.client.blocking.batch_sender import BatchSender
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import idempotent_producer
from spindle.client.blocking.transactions import ProducerTransaction
from spindle.client.errors import ClientError
from spindle.client.transactions import TransactionEnd
from spindle.common.errors import ApiError, ErrorCode
from spindle.pipeline.sink.batching import BatchGatherer, RowDigester
from spindle.pipeline.sink.errors import InputChanged, SinkError
from spindle.pipeline.sink.options import SinkOptions
from spindle.pipeline.sink.results import TaskPlace, WrittenRows
from spindle.pipeline.sink.rows import row_buffers
from spindle.pipeline.sink.state import BatchDecision, QueryState, RowsDigest
from spindle.pipeline.sink.state_store import QueryRegister


def register_of(client: WireClient, options: SinkOptions, query: str) -> QueryRegister:
    """Return the register of a query."""
    return QueryRegister(client, query, prefix=options.id_prefix, topic=options.state_topic)


def write_at_least_once(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> WrittenRows:
    """Write rows without a transaction; they are stored when this returns.

    Raises:
        SinkError: a row cannot be written.
        ApiError: the cluster refused.
        ClientError: a broker could not be asked.
    """
    with WireClient(options.client) as client:
        identity = idempotent_producer(client) if options.acks < 0 else None
        sender = BatchSender(
            client,
            identity,
            codec=options.codec,
            acks=options.acks,
            max_in_flight=options.max_in_flight,
        )
        with contextlib.closing(sender):
            return WrittenRows(None, None, _send(client, options, sender, batches))


def write_in_transaction(
    options: SinkOptions, place: TaskPlace, batches: Iterable[pa.RecordBatch]
) -> WrittenRows:
    """Write rows in a transaction and leave it open, unless they are committed already.

    Raises:
        SinkReplaced: another run of the query has begun since.
        InputChanged: a part of the batch is committed, with other rows than these.
        SinkError: a row cannot be written, or the batch is over.
        ApiError: the cluster refused.
        ClientError: a broker could not be asked.
    """
    with WireClient(options.client) as client:
        register = register_of(client, options, place.query)
        state = own_query(register, place, takes_missing_state=options.takes_missing_state)
        decision = state.decision_of(place.batch)
        place = replace(place, attempt=f"{place.attempt}-{state.turn_after(place.run)}")
        if decision is not None:
            _check_not_late(decision, place)
            if not _is_to_write_again(decision, place, options, batches):
                return WrittenRows(place, None, RowsDigest(), replays=True)
        written = _write(client, register, options, place, batches)
        return replace(written, replays=decision is not None)


def own_query(
    register: QueryRegister, place: TaskPlace, *, takes_missing_state: bool = False
) -> QueryState:
    """Make this run the owner of the query, if it is not yet; return the state.

    From then on no earlier run can commit anything. If an earlier run decided this batch, its
    transactions are committed first, and the state says which of them were aborted before. All
    other transactions of earlier runs are aborted.

    Raises:
        SinkReplaced: another run has begun since this one.
        SinkError: the batch is older than the last decided one, or the state is missing.
    """

    def take(before: QueryState | None) -> QueryState:
        if before is None:
            if place.batch > 0 and not takes_missing_state:
                raise SinkError(
                    f"the cluster has no state of query {place.query}, and this is its batch "
                    f"{place.batch}. The state expires after offsets.retention.minutes (7 days) "
                    "without a batch, or the checkpoint comes from another sink. If the topic "
                    "shows that the batch is not written yet, set option missingState=write for "
                    "one run"
                )
            return QueryState(place.run)
        before.check_batch(place.batch)
        if before.owner == place.run:
            return before
        after = before.owned_by(place.run)
        decision = before.decision_of(place.batch)
        return replace(after, decision=_finished(register, decision)) if decision else after

    state = register.read_nowait()
    if state is not None and state.owner == place.run:
        state.check_batch(place.batch)
        return state
    state = register.change(take)
    register.abort_open(state.former)
    return state


def _finished(register: QueryRegister, decision: BatchDecision) -> BatchDecision:
    """Return the decision with the outcome of each transaction; commit those that are open."""
    ended = []
    for transaction in decision.transactions:
        if not (transaction.is_committed or transaction.is_aborted):
            end = register.finish(decision.run, transaction)
            is_committed = end is TransactionEnd.COMMITTED
            transaction = replace(
                transaction, is_committed=is_committed, is_aborted=not is_committed
            )
        ended.append(transaction)
    return replace(decision, transactions=tuple(ended))


def _check_not_late(decision: BatchDecision, place: TaskPlace) -> None:
    if decision.run == place.run:
        raise SinkError(
            f"batch {place.batch} is decided without attempt {place.attempt} of task "
            f"{place.task}: another attempt was faster"
        )


def _is_to_write_again(
    decision: BatchDecision,
    place: TaskPlace,
    options: SinkOptions,
    batches: Iterable[pa.RecordBatch],
) -> bool:
    """Return True if the rows of this task were aborted after the decision.

    If others were, check that the rows of this task are the committed ones.
    """
    earlier = decision.of_task(place.task)
    if earlier is not None and earlier.is_aborted:
        return True
    digester = RowDigester()
    for batch in batches:
        if decision.is_partial and batch.num_rows:
            digester.add(row_buffers(batch, options.topic))
    expected = earlier.digest if earlier is not None else RowsDigest()
    if decision.is_partial and digester.digest != expected:
        raise InputChanged(
            f"batch {place.batch} is partly committed: of {len(decision.transactions)} "
            f"transactions {sum(t.is_aborted for t in decision.transactions)} were aborted, "
            f"probably by kafka.transaction.timeout.ms. Task {place.task} committed "
            f"{expected.rows} rows (digest {expected}) and is given other rows now "
            f"({digester.digest}), because the input or the query is not deterministic. So the "
            "rest cannot be written without repeating or losing rows. See docs/guide/streaming.md"
        )
    return False


def _write(
    client: WireClient,
    register: QueryRegister,
    options: SinkOptions,
    place: TaskPlace,
    batches: Iterable[pa.RecordBatch],
) -> WrittenRows:
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return WrittenRows(place, None, RowsDigest())
    place = _with_free_id(register, place)
    # If another attempt has committed with the id meanwhile, its batch is decided. A new epoch of
    # the id would make the coordinator forget that outcome, which the next run may ask for.
    _check_in_time(register, place)
    transaction = ProducerTransaction(
        register.coordinators,
        register.transactional_id(place.run, place.attempt),
        options.transaction_timeout_ms,
    )
    # If another attempt has used the id since and its batch is decided, this one must not open a
    # transaction: its abort would look like that of the decided one.
    _check_in_time(register, place)
    try:
        sender = BatchSender(
            client,
            transaction.identity,
            transactional_id=transaction.transactional_id,
            add_partitions=transaction.add_partitions,
            codec=options.codec,
            max_in_flight=options.max_in_flight,
        )
        with contextlib.closing(sender):
            digest = _send(client, options, sender, _chained(first, filled))
        _check_in_time(register, place)
    except BaseException:
        with contextlib.suppress(ApiError, ClientError):
            transaction.end(commit=False)
        raise
    return WrittenRows(place, transaction.identity, digest)


def _with_free_id(register: QueryRegister, place: TaskPlace) -> TaskPlace:
    """Return the place with an id of its own if another attempt has the transaction open.

    Spark counts the attempts of a task anew if it repeats a stage, while the attempts of the stage
    before may still run, and its driver may still take their results.
    """
    if not register.is_open(place.run, place.attempt):
        return place
    attempt, _, turn = place.attempt.rpartition("-")
    return replace(place, attempt=f"{attempt}.{place.attempt_id}-{turn}")


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _check_in_time(register: QueryRegister, place: TaskPlace) -> None:
    """Raise SinkError if the batch was decided, or another run began, while the rows were sent.

    The driver aborts what it finds after its decision; later transactions have to end themselves.
    """
    state = register.read()
    if state is None:
        raise SinkError(f"the state of query {place.query} disappeared from the cluster")
    state.check_owner(place.run)
    state.check_batch(place.batch)
    decision = state.decision_of(place.batch)
    if decision is not None:
        _check_not_late(decision, place)


def _send(
    client: WireClient,
    options: SinkOptions,
    sender: BatchSender,
    batches: Iterable[pa.RecordBatch],
) -> RowsDigest:
    digester = RowDigester()
    gatherer = BatchGatherer(
        options.limits, lambda topic: partition_count(client, topic), sender.send
    )
    for batch in batches:
        if batch.num_rows:
            rows = row_buffers(batch, options.topic)
            digester.add(rows)
            gatherer.add(rows)
    gatherer.flush()
    sender.flush()
    return digester.digest


def partition_count(client: WireClient, topic: str) -> int:
    """Return the number of partitions of a topic.

    Raises:
        SinkError: the topic does not exist.
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    view = client.metadata([topic])
    if view.refused.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise SinkError(
            f"topic {topic!r} does not exist in cluster {view.cluster_id}; the sink does not "
            "create topics"
        )
    return len(view.topic(topic).partitions)
