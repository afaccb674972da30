"""Log lines at level INFO about groups and transactions, as operators read them."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from consumer_group_scenario import ConsumerScenario
from group_scenario import GROUP, SESSION_MS, Scenario
from transaction_scenario import P0, TX, TransactionScenario

from spindle.coordinator.transactions.records import TransactionRecord


@pytest.fixture(autouse=True)
def _captured(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    logger = logging.getLogger("spindle.coordinator")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "spindle.coordinator")
    yield
    logger.removeHandler(caplog.handler)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = list(dict.fromkeys(record.getMessage() for record in caplog.records))
    caplog.clear()
    return told


def test_only_the_start_and_failures_of_transactions_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = TransactionScenario()
    s.init()
    assert messages(caplog) == [f"Initialized transactional id '{TX}': producer id 100, epoch 0"]
    s.add((100, 0), P0)
    s.end((100, 0))
    s.mark()
    assert messages(caplog) == []
    s.add((100, 1), P0)
    s.init()
    s.mark()
    s.init()
    assert messages(caplog) == [
        f"Aborting the transaction of '{TX}': a new producer takes the place of producer 100",
        f"Initialized transactional id '{TX}': producer id 100, epoch 3, earlier producers are "
        "fenced",
    ]


def test_many_transactions_that_time_out_are_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = TransactionScenario()
    s.init()
    s.add((100, 0), P0)
    (open_,) = [record.metadata for record in s.log[-1:]]
    assert open_ is not None
    s.log += [TransactionRecord(f"x{n}", replace(open_, producer_id=200 + n)) for n in range(30)]
    s.start()
    messages(caplog)
    s.advance(70_000)
    (line,) = messages(caplog)
    names = ", ".join([f"'{TX}'", *(f"'x{n}'" for n in range(19))])
    assert line == f"Aborting transactions that timed out, of {names} and 11 more"


def test_generations_and_removals_of_classic_groups_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = Scenario()
    members = s.stable_group(2)
    assert messages(caplog)[-1] == f"Group '{GROUP}' has generation 1 with 2 members"
    s.leave(members[1])
    assert messages(caplog) == [
        f"Removed from group '{GROUP}' (left): '{members[1]}'",
        f"Group '{GROUP}' begins a rebalance after generation 1, 1 members",
    ]
    s.advance(SESSION_MS)
    assert messages(caplog) == [
        f"Removed from group '{GROUP}' (session timed out): '{members[0]}'",
        f"Group '{GROUP}' has generation 2 with 0 members",
    ]


def test_epochs_and_removals_of_consumer_groups_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = ConsumerScenario()
    s.join_consumer("a")
    s.join_consumer("b")
    s.beat("b", epoch=-1)
    s.advance(s.consumer_config.session_timeout_ms)
    assert messages(caplog) == [
        f"Group '{GROUP}' begins epoch 2 with 1 members",
        f"Group '{GROUP}' begins epoch 3 with 2 members",
        f"Removed from group '{GROUP}' (left): 'b'",
        f"Removed from group '{GROUP}' (session timed out): 'a'",
    ]
