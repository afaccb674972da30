"""Operations as a program calls them: typed results, events, cancellation and refusals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle import operations
from spindle.client.admin.configs import ReportedSource, describe
from spindle.client.admin.cordons import cordoned_entries
from spindle.client.blocking.client import WireClient
from spindle.common.text import size_text
from spindle.config.resources import ConfigResourceType
from spindle.operations import PlanLimits, PlanSettings, ProgressEvent, Removal
from spindle.operations.cancellation import (
    Cancellation,
    Cancelled,
    ProgressReport,
    undone_if_cancelled,
)
from spindle.operations.directories import DrainTarget
from spindle.operations.drain_removal import check_removal
from spindle.operations.events import Cordoned, Drained, MovesLeft, TooFull
from spindle.operations.throttles import BETWEEN_BROKERS
from spindle.testing import Cluster

SETTINGS = PlanSettings(PlanLimits(), capacity_bytes=2**30)


@pytest.fixture(scope="module")
def client() -> Iterator[WireClient]:
    with Cluster(directories=3) as cluster:
        cluster.create_topic("operated", partitions=6)
        with operations.connect(cluster.bootstrap_servers) as client:
            yield client


def replica_counts(client: WireClient) -> dict[str, int]:
    return {view.path: len(view.replicas) for view in client.describe_log_dirs()[1]}


def throttles(client: WireClient) -> list[str]:
    return [
        config.name
        for config in describe(client, ConfigResourceType.BROKER, "1", BETWEEN_BROKERS)
        if config.source is ReportedSource.DYNAMIC_BROKER_CONFIG
    ]


def test_a_cancelled_drain_stops_its_moves_and_removes_cordon_and_throttles(
    client: WireClient, tmp_path: Path
) -> None:
    events: list[ProgressEvent] = []
    cancellation = Cancellation()

    def cancel_once_it_moves(event: ProgressEvent) -> None:
        events.append(event)
        if isinstance(event, MovesLeft):
            cancellation.cancel()

    path, state = max(replica_counts(client)), tmp_path / "drain.json"
    with pytest.raises(Cancelled):
        operations.drain(
            client,
            1,
            path,
            settings=SETTINGS,
            state=state,
            on_progress=cancel_once_it_moves,
            cancellation=cancellation,
        )
    assert isinstance(events[0], Cordoned)
    assert [event.event for event in events[-2:]] == ["stopping", "cancelled"]
    assert (cordoned_entries(client, 1), throttles(client), state.exists()) == ((), [], False)


def test_a_drain_returns_what_it_reached_and_nothing_is_printed(
    client: WireClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = max(replica_counts(client))
    plan = operations.plan.drain(client, 1, path, SETTINGS)
    assert {plan.placement.cluster.directories[place].path for place in plan.placement.leaving} == {
        path
    }
    events: list[ProgressEvent] = []
    drained = operations.drain(
        client,
        1,
        f"{path}/",
        then=Removal.REMOVE,
        settings=SETTINGS,
        state=tmp_path / "drain.json",
        on_progress=events.append,
    )
    assert drained == operations.DrainResult(DrainTarget(1, path), True, (), Removal.REMOVE)
    assert path not in replica_counts(client)
    assert Drained([], True, DrainTarget(1, path)) in events
    assert capsys.readouterr() == ("", "")


def test_a_goal_that_no_plan_reaches_names_the_limit_and_the_cluster(client: WireClient) -> None:
    with pytest.raises(operations.plan.NoPlan, match="cannot move") as refused:
        operations.plan.decommission(client, 1, SETTINGS)
    assert refused.value.infeasible is not None
    assert refused.value.infeasible.remedy
    assert refused.value.snapshot.model.brokers[0].broker_id == 1


def test_a_failed_drain_notes_that_nothing_has_changed(client: WireClient, tmp_path: Path) -> None:
    with pytest.raises(operations.Infeasible) as failed:
        operations.drain(client, 1, settings=SETTINGS, state=tmp_path / "drain.json")
    assert failed.value.__notes__ == ["Nothing has changed."]
    with pytest.raises(operations.OperationFailed, match="there is no drain to cancel"):
        operations.cancel_drain(client, 1, state=tmp_path / "drain.json")


def test_a_directory_is_retired_and_a_broker_unregistered_and_not_the_other_way(
    client: WireClient,
) -> None:
    for removal, target in (
        (Removal.REMOVE, DrainTarget(1)),
        (Removal.UNREGISTER, DrainTarget(1, "/d")),
    ):
        with pytest.raises(operations.OperationFailed, match="a directory is removed, and a whole"):
            check_removal(client, removal, target)


def test_a_pause_ends_when_its_operation_is_cancelled(tmp_path: Path) -> None:
    cancellation, events = Cancellation(), list[ProgressEvent]()
    cancellation.cancel()
    undone: list[str] = []
    with (
        pytest.raises(Cancelled),
        undone_if_cancelled(
            lambda: undone.append("moves"),
            tmp_path / "state",
            ProgressReport(events.append),
            "`cancel_drain`",
        ),
    ):
        cancellation.sleep(3600.0)
    assert undone == ["moves"]
    assert [str(event) for event in events] == ["stopping the moves"]


def test_the_facts_of_an_event_are_its_fields_without_those_of_its_text() -> None:
    event = TooFull("1:/a", 0.5, 0.9, trigger_fill=0.85)
    assert event.facts == {"directory": "1:/a", "fill": 0.5, "fillAhead": 0.9}
    assert str(event) == "1:/a is at 50.0%, and 90.0% at the horizon: above 85%"
    left = MovesLeft(2, 3 * 2**20, 1)
    assert (left.event, left.facts) == (
        "round",
        {"replicasLeft": 2, "bytesLeft": 3 * 2**20, "moves": 1},
    )
    assert left.text == f"2 replicas to move, {size_text(3 * 2**20)}; 1 under way"
