"""Deaths and delays between the first task of a batch and Spark's note that it is done.

`test_sink_crashes` runs these scenarios on Spindle, the interop tests run them on Apache Kafka.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from sink_run import Crash, SinkRun, arrow_rows, crash_after
from waiting import wait_for

from spindle.client.admin.transactions import describe_transaction, terminate_transaction
from spindle.client.blocking.transactions import ProducerTransaction
from spindle.client.transactions import TransactionEnd
from spindle.pipeline.sink import task
from spindle.pipeline.sink.errors import InputChanged, OutcomeUnknown, SinkError, SinkReplaced
from spindle.pipeline.sink.results import WrittenRows
from spindle.pipeline.sink.state_store import QueryRegister

Scenario = Callable[[SinkRun, pytest.MonkeyPatch], None]

PARTS = (("a", "b", "c"), ("d", "e"), ("f",), ())
ALL = sorted(value for part in PARTS for value in part)
WAIT_S = 30.0


def check_once(run: SinkRun, expected: list[str] = ALL) -> None:
    check_committed(run, expected)
    assert run.open_transactions() == []


def check_committed(run: SinkRun, expected: list[str]) -> None:
    """Check the rows when they are visible: a coordinator answers before it writes the markers."""
    committed = wait_for(
        run.committed,
        lambda rows: len(rows) >= len(expected),
        f"{expected} are committed",
        limit_s=WAIT_S,
        pause_s=0.02,
    )
    assert committed == expected


def rows_are_visible_when_the_driver_commits(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    results = run.tasks(0, PARTS)
    assert run.committed() == []
    assert len(run.open_transactions()) == 3
    run.commit(results)
    check_once(run)
    run.batch(1, [["g"], []])
    check_once(run, [*ALL, "g"])


def a_task_dies_while_it_writes(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    first = run.task(0, 0, PARTS[0])
    with patch.context() as inner:
        # Neither the rows' end nor the abort of the transaction happens.
        crash_after(inner, QueryRegister, "read", 0)
        inner.setattr("spindle.pipeline.sink.task.ProducerTransaction.end", _never_called)
        with pytest.raises(Crash):
            run.task(0, 1, PARTS[1])
    results = [first, run.task(0, 1, PARTS[1], attempt=1), run.task(0, 2, PARTS[2])]
    run.commit(results)
    check_once(run)


def _never_called(*_: object, **__: object) -> None:
    raise Crash


def the_driver_dies_before_the_decision(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    run.tasks(0, PARTS)
    run.restarted("second").batch(0, PARTS)
    check_once(run)


def the_driver_dies_while_it_decides(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    results = run.tasks(0, PARTS)
    with patch.context() as inner:
        inner.setattr("spindle.pipeline.sink.state_store.ProducerTransaction.end", _never_called)
        with pytest.raises(Crash):
            run.commit(results)
    run.restarted("second").batch(0, PARTS)
    check_once(run)


def _die_in_the_middle(run: SinkRun, patch: pytest.MonkeyPatch, ended: int) -> None:
    results = run.tasks(0, PARTS)
    with patch.context() as inner:
        crash_after(inner, QueryRegister, "finish", ended)
        with pytest.raises(Crash):
            run.commit(results)


def the_driver_dies_after_the_decision(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    _die_in_the_middle(run, patch, 0)
    assert run.committed() == []
    _replay_writes_nothing(run)


def the_driver_dies_between_two_commits(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    _die_in_the_middle(run, patch, 2)
    _replay_writes_nothing(run)


def the_driver_dies_before_spark_notes_the_batch(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    run.commit(run.tasks(0, PARTS))
    _replay_writes_nothing(run)


def _replay_writes_nothing(run: SinkRun) -> None:
    second = run.restarted("second")
    results = second.tasks(0, [["other"], ["rows"], [], ["too"]])
    assert all(result is not None and result.identity is None for result in results)
    second.commit(results)
    check_once(run)
    second.batch(1, [["g"]])
    check_once(run, [*ALL, "g"])


def the_recovering_run_dies_too(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    _die_in_the_middle(run, patch, 1)
    with patch.context() as inner:
        crash_after(inner, QueryRegister, "finish", 2)
        with pytest.raises(Crash):
            run.restarted("second").task(0, 0, PARTS[0])
    third = run.restarted("third")
    third.batch(0, PARTS)
    check_once(run)


def _expire(run: SinkRun, result: WrittenRows | None) -> None:
    """Wait until the coordinator has aborted the transaction of a task."""
    assert result is not None
    assert result.place is not None
    attempt = result.place.attempt

    def state(register: QueryRegister) -> str:
        name = register.transactional_id(run.run, attempt)
        return describe_transaction(register.client, name).state

    wait_for(
        lambda: run.ask_register(state),
        lambda name: name == "CompleteAbort",
        limit_s=WAIT_S,
        pause_s=0.02,
    )


def _partly_expired(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    """Decide a batch, commit its first transaction, and let the third one expire."""
    results = [
        run.task(0, 0, PARTS[0]),
        run.task(0, 1, PARTS[1]),
        run.with_options(transaction_timeout_ms="1000").task(0, 2, PARTS[2]),
        run.task(0, 3, PARTS[3]),
    ]
    with patch.context() as inner:
        crash_after(inner, QueryRegister, "finish", 1)
        with pytest.raises(Crash):
            run.commit(results)
    _expire(run, results[2])


def a_decided_transaction_expires_and_the_rows_are_the_same(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    _partly_expired(run, patch)
    shuffled = [["c", "a", "b"], *PARTS[1:]]
    run.restarted("second").batch(0, shuffled)
    check_once(run)


def a_decided_transaction_expires_and_the_rows_changed(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    _partly_expired(run, patch)
    second = run.restarted("second")
    with pytest.raises(InputChanged, match="not deterministic"):
        second.task(0, 0, ["a", "b", "C"])
    with pytest.raises(InputChanged, match="partly committed"):
        second.task(0, 3, ["new"])
    with pytest.raises(InputChanged, match="2 tasks"):
        second.commit([second.task(0, 0, PARTS[0]), second.task(0, 2, PARTS[2])])
    check_committed(run, sorted((*PARTS[0], *PARTS[1])))


def the_rewrite_of_an_expired_transaction_is_interrupted(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    _partly_expired(run, patch)
    second = run.restarted("second")
    results = second.tasks(0, PARTS)
    with patch.context() as inner:
        crash_after(inner, QueryRegister, "finish", 0)
        with pytest.raises(Crash):
            second.commit(results)
    run.restarted("third").batch(0, PARTS)
    check_once(run)


def an_outcome_that_is_recorded_is_not_asked_for_again(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    _partly_expired(run, patch)
    run.restarted("second").task(0, 0, PARTS[0])

    def forget(register: QueryRegister) -> None:
        state = register.read()
        assert state is not None
        assert state.decision is not None
        for transaction in state.decision.transactions:
            terminate_transaction(
                register.client, register.transactional_id(run.run, transaction.attempt)
            )

    run.ask_register(forget)
    run.restarted("third").batch(0, PARTS)
    check_once(run)


def a_transaction_expires_before_the_decision(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    hasty = run.with_options(transaction_timeout_ms="1000")
    results = [hasty.task(0, 0, PARTS[0]), run.task(0, 1, PARTS[1])]
    _expire(run, results[0])
    with pytest.raises(SinkError, match="took longer than"):
        run.commit(results)
    run.abort(results)
    check_once(run, [])
    run.restarted("second").batch(0, PARTS)
    check_once(run)


def somebody_else_ends_a_decided_transaction(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    _die_in_the_middle(run, patch, 0)

    def terminate(register: QueryRegister) -> None:
        (name,) = (
            transaction
            for transaction in run.open_transactions()
            if f"-{run.run}-1-0" in transaction
        )
        terminate_transaction(register.client, name)

    run.ask_register(terminate)
    with pytest.raises(OutcomeUnknown, match="2 rows"):
        run.restarted("second").task(0, 0, PARTS[0])


def an_old_driver_is_still_running(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    old = run.tasks(0, PARTS)
    second = run.restarted("second")
    new = second.tasks(0, PARTS)
    with pytest.raises(SinkError):
        run.commit(old)
    run.abort(old)
    with pytest.raises(SinkReplaced, match="two drivers"):
        run.task(0, 2, PARTS[2], attempt=1)
    second.commit(new)
    check_once(run)
    with pytest.raises(SinkError):
        run.task(1, 0, ["zombie"])
    check_once(run)


def an_old_driver_wakes_up_between_check_and_decision(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    old = run.tasks(0, PARTS)
    second = run.restarted("second")
    new: list[WrittenRows | None] = []

    def checked(*_: object) -> None:
        new.extend(second.tasks(0, PARTS))

    with patch.context() as inner:
        inner.setattr(QueryRegister, "check_open", checked)
        with pytest.raises(SinkReplaced):
            run.commit(old)
    second.commit(new)
    check_once(run)


def an_old_driver_has_decided_and_sleeps(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    results = run.tasks(0, PARTS)
    second = run.restarted("second")
    finish = QueryRegister.finish

    def overtaken(register: QueryRegister, *arguments: Any) -> TransactionEnd:
        patch.setattr(QueryRegister, "finish", finish)
        second.batch(0, PARTS)
        second.task(1, 0, ["g"])
        return finish(register, *arguments)

    patch.setattr(QueryRegister, "finish", overtaken)
    run.commit(results)
    assert len(run.open_transactions()) == 1
    check_committed(run, ALL)


def two_attempts_of_a_task_run(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    results = run.tasks(0, PARTS)
    run.task(0, 0, PARTS[0], attempt=1)
    assert len(run.open_transactions()) == 4
    run.commit(results)
    check_once(run)
    with pytest.raises(SinkError, match="another attempt was faster"):
        run.task(0, 1, PARTS[1], attempt=1)
    check_once(run)


def an_attempt_ends_after_the_decision(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    results = run.tasks(0, PARTS)
    send = task._send

    def slow(*arguments: Any) -> object:
        digest = send(*arguments)
        run.commit(results)
        # The driver has aborted this attempt; let it find out by itself as well.
        return digest

    with patch.context() as inner:
        inner.setattr(task, "_send", slow)
        with pytest.raises(SinkError, match="another attempt was faster"):
            run.task(0, 0, PARTS[0], attempt=1)
    check_once(run)


def _before_it_begins(patch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Do something when the next task has looked at the state, before it begins a transaction."""
    begin = ProducerTransaction.__init__

    def delayed(writer: ProducerTransaction, *arguments: Any) -> None:
        patch.setattr(ProducerTransaction, "__init__", begin)
        meanwhile()
        begin(writer, *arguments)

    patch.setattr(ProducerTransaction, "__init__", delayed)


def an_attempt_of_a_repeated_stage_leaves_the_one_before_alone(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    results = run.tasks(0, PARTS)
    # Spark repeats the stage: the attempts have the same numbers, and run beside the first ones.
    twins = [run.task(0, 0, PARTS[0]), run.task(0, 0, PARTS[0])]
    assert len(run.open_transactions()) == 5
    # The driver takes the result that comes first.
    run.commit([twins[0], *results[1:]])
    check_once(run)
    run.batch(1, [["g"]])
    check_once(run, [*ALL, "g"])


def an_attempt_of_a_repeated_stage_takes_the_id_of_one_that_had_not_begun(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    run.task(0, 3, [])  # The run owns the query.
    results: list[WrittenRows | None] = []
    _before_it_begins(patch, lambda: results.extend(run.tasks(0, PARTS)))
    late = run.task(0, 0, PARTS[0])
    with pytest.raises(SinkError, match="before its batch is complete"):
        run.commit(results)
    run.commit([late, *results[1:]])
    check_once(run)


def an_attempt_of_a_repeated_stage_begins_after_the_driver_died(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    run.task(0, 3, [])  # The run owns the query.

    def others_finish_the_batch() -> None:
        results = run.tasks(0, PARTS)
        with patch.context() as inner:
            crash_after(inner, QueryRegister, "finish", 1)
            with pytest.raises(Crash):
                run.commit(results)

    # The first task has the same number of its attempt in both stages.
    _before_it_begins(patch, others_finish_the_batch)
    with pytest.raises(SinkError, match="another attempt was faster"):
        run.task(0, 0, PARTS[0])
    check_committed(run, sorted(PARTS[0]))
    # The transaction of the first task is committed, and its id was used again since.
    with pytest.raises(OutcomeUnknown, match="3 rows"):
        run.restarted("second").task(0, 0, PARTS[0])
    check_committed(run, sorted(PARTS[0]))


def the_batch_is_decided_before_a_repeated_stage_has_its_first_row(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    run.task(0, 3, [])  # The run owns the query.

    def rows() -> Iterator[pa.RecordBatch]:
        results = run.tasks(0, PARTS)
        with patch.context() as inner:
            crash_after(inner, QueryRegister, "finish", 1)
            with pytest.raises(Crash):
                run.commit(results)
        yield arrow_rows(PARTS[0])

    with pytest.raises(SinkError, match="another attempt was faster"):
        run.task_of(0, 0, rows())
    # The late task has left the id of the committed transaction as it was.
    run.restarted("second").batch(0, PARTS)
    check_once(run)


def spark_aborts_a_failed_batch(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    results = run.tasks(0, PARTS)
    run.abort([*results[:2], None, *results[3:]])
    check_once(run, [])
    run.batch(0, PARTS)
    check_once(run)


def spark_aborts_after_a_commit_that_failed(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    _results = run.tasks(0, PARTS)
    with patch.context() as inner:
        crash_after(inner, QueryRegister, "finish", 1)
        with pytest.raises(Crash):
            run.commit(_results)
    run.abort(_results)
    assert len(run.open_transactions()) == 2
    run.restarted("second").batch(0, PARTS)
    check_once(run)


def many_tasks_start_at_once(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    run.restarted("earlier").tasks(0, PARTS)
    parts = [[f"{number}"] for number in range(8)]
    with ThreadPoolExecutor(len(parts)) as pool:
        results = list(pool.map(lambda at: run.task(0, at, parts[at]), range(len(parts))))
    run.commit(results)
    check_once(run, sorted(str(number) for number in range(8)))


def a_task_that_lost_the_race_for_the_state_leaves_it_alone(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []
    results = []
    begin, write = ProducerTransaction.__init__, ProducerTransaction.commit_offsets

    def counted(writer: ProducerTransaction, coordinators: Any, name: str, *rest: Any) -> None:
        began.append(name)
        begin(writer, coordinators, name, *rest)

    def overtaken(*arguments: Any) -> None:
        patch.setattr(ProducerTransaction, "commit_offsets", write)
        results.append(run.task(0, 1, PARTS[1]))
        write(*arguments)

    patch.setattr(ProducerTransaction, "__init__", counted)
    patch.setattr(ProducerTransaction, "commit_offsets", overtaken)
    results.append(run.task(0, 0, PARTS[0]))
    assert sum(name.endswith(run.query) for name in began) == 2
    run.commit([*results, run.task(0, 2, PARTS[2])])
    check_once(run)


def the_checkpoint_lost_its_note_of_the_last_batch(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    run.batch(0, PARTS)
    # The machine of the driver loses power in the next batch: the checkpoint was not on disk yet.
    hasty = run.with_options(transaction_timeout_ms="1000")
    begun = hasty.task(1, 0, ["g"])
    _expire(run, begun)
    run.restarted("second").batch(0, PARTS)
    check_once(run)


def a_failed_attempt_of_the_next_batch_says_nothing_about_this_one(
    run: SinkRun, patch: pytest.MonkeyPatch
) -> None:
    run.batch(0, PARTS)
    with pytest.raises(SinkError, match="above kafka"):
        run.task(1, 0, ["g" * 2_000_000])
    run.restarted("second").batch(0, PARTS)
    check_once(run)


def an_old_batch_is_refused(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    run.batch(0, PARTS)
    run.batch(1, [["g"]])
    with pytest.raises(SinkError, match="set back"):
        run.restarted("second").task(0, 0, PARTS[0])


def a_later_batch_without_state_is_refused(run: SinkRun, patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkError, match="missingState=write"):
        run.task(7, 0, PARTS[0])
    willing = replace(run, given=(("missingState", "write"),))
    willing.batch(7, PARTS)
    check_once(run)


SCENARIOS: tuple[Scenario, ...] = (
    rows_are_visible_when_the_driver_commits,
    a_task_dies_while_it_writes,
    the_driver_dies_before_the_decision,
    the_driver_dies_while_it_decides,
    the_driver_dies_after_the_decision,
    the_driver_dies_between_two_commits,
    the_driver_dies_before_spark_notes_the_batch,
    the_recovering_run_dies_too,
    a_decided_transaction_expires_and_the_rows_are_the_same,
    a_decided_transaction_expires_and_the_rows_changed,
    the_rewrite_of_an_expired_transaction_is_interrupted,
    an_outcome_that_is_recorded_is_not_asked_for_again,
    a_transaction_expires_before_the_decision,
    somebody_else_ends_a_decided_transaction,
    an_old_driver_is_still_running,
    an_old_driver_wakes_up_between_check_and_decision,
    an_old_driver_has_decided_and_sleeps,
    two_attempts_of_a_task_run,
    an_attempt_ends_after_the_decision,
    an_attempt_of_a_repeated_stage_leaves_the_one_before_alone,
    an_attempt_of_a_repeated_stage_takes_the_id_of_one_that_had_not_begun,
    an_attempt_of_a_repeated_stage_begins_after_the_driver_died,
    the_batch_is_decided_before_a_repeated_stage_has_its_first_row,
    spark_aborts_a_failed_batch,
    spark_aborts_after_a_commit_that_failed,
    many_tasks_start_at_once,
    a_task_that_lost_the_race_for_the_state_leaves_it_alone,
    the_checkpoint_lost_its_note_of_the_last_batch,
    a_failed_attempt_of_the_next_batch_says_nothing_about_this_one,
    an_old_batch_is_refused,
    a_later_batch_without_state_is_refused,
)
