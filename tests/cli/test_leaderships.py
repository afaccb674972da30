"""The last step of an execution: other replicas come first and are elected as leaders."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from spindle.cli.main import run
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.operations import balance_run, drain_run
from spindle.operations.events import ProgressEvent
from spindle.operations.execution import leaderships
from spindle.operations.execution.leaderships import give_leaderships

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


class Controller:
    """Takes note of orders and elections.

    Attributes:
        refused: partitions whose order is not changed.
    """

    def __init__(self, *refused: TopicPartition) -> None:
        self.refused = refused
        self.orders: dict[TopicPartition, Sequence[int]] = {}
        self.elected: Sequence[TopicPartition] = ()

    def current(self, *_: object, **__: object) -> dict[TopicPartition, tuple[int, ...]]:
        return {FIRST: (1, 2), SECOND: (1, 2), THIRD: (1, 3)}

    def alter(
        self, _: object, orders: Mapping[TopicPartition, Sequence[int]]
    ) -> dict[TopicPartition, ApiError | None]:
        self.orders.update(orders)
        error = ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")
        return {order: error if order in self.refused else None for order in orders}

    def elect(
        self, _: object, kind: object, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ApiError | None]:
        self.elected = partitions
        late = ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "no")
        return {partition: late if partition == SECOND else None for partition in partitions}


def told_by(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, *partitions: TopicPartition
) -> list[str]:
    """Ask for broker 2 as the leader of partitions, and return what is told."""
    monkeypatch.setattr(leaderships, "current_replicas", controller.current)
    monkeypatch.setattr(leaderships, "alter_reassignments", controller.alter)
    monkeypatch.setattr(leaderships, "elect_leaders", controller.elect)
    told: list[ProgressEvent] = []
    give_leaderships(cast("WireClient", None), dict.fromkeys(partitions, (2, 1)), told.append)
    return [event.text for event in told]


def test_partitions_that_have_other_replicas_meanwhile_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller()
    told = told_by(controller, monkeypatch, FIRST, THIRD)
    assert controller.orders == {FIRST: (2, 1)}
    assert list(controller.elected) == [FIRST]
    assert told == ["another replica of 1 partition comes first, and leads"]
    assert told_by(Controller(), monkeypatch, THIRD) == []
    assert told_by(Controller(), monkeypatch) == []


def test_refusals_and_replicas_that_cannot_lead_yet_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller(FIRST)
    told = told_by(controller, monkeypatch, FIRST, SECOND)
    assert list(controller.elected) == [SECOND]
    assert told[0].startswith("the cluster refused another order of t-0")
    assert told[1].endswith("1 of them cannot be led by it yet, such as t-1")


@pytest.mark.parametrize("module", [drain_run, balance_run], ids=["drain", "balance"])
def test_leaders_are_kept_if_that_is_wanted(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    module: ModuleType,
) -> None:
    changes: list[object] = []
    monkeypatch.setattr(module, "give_leaderships", lambda *given: changes.append(given))
    state = ("--capacity", "1GiB", "--state", str(tmp_path / "state.json"))
    words: tuple[str, ...] = ("balance", *state)
    if module is drain_run:
        assert run(("disks", "list", "--json")) == 0
        (broker,) = json.loads(capsys.readouterr().out)["brokers"]
        words = ("drain", f"1:{broker['directories'][0]['path']}", *state)
    assert run((*words, "--keep-leaders")) == 0
    assert changes == []
    assert run(words) == 0
    assert len(changes) == 1
