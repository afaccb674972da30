"""Each mutant makes a deliberate mistake, and the simulation must find it.

`make test` looks for one; `make simulate MUTANTS=1` runs all of them.
"""

from inspect import Parameter, isfunction, signature
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from verification.simulation import __main__ as command
from verification.simulation.mutant import applied
from verification.simulation.mutants import MUTANTS
from verification.simulation.pool import run_seed
from verification.simulation.recorded_seeds import RECORDED_SEEDS
from verification.simulation.scenario import draw

SEEDS = 60
EASY = (
    "ISR expanded early",
    "ISR expanded without a fetch",
    "acks=all as acks=1",
    "answer before commit",
    "background tasks end",
    "batches appended twice",
    "defaults of brokers not applied",
    "duplicates not found",
    "election outside the ISR",
    "epochs hidden from leaders",
    "high watermark at the log end",
    "high watermark by one follower",
    "leader without a controller",
    "metadata committed alone",
    "moves without the controller",
    "producers forgotten by followers",
    "records of an earlier level",
    "settings of topics not applied",
    "snapshot with a partition less",
    "truncation below the high watermark",
    "truncation ignored",
    "two current logs",
)


def seeds_of(name: str) -> range:
    """Return the seeds of a hunt; they begin with the recorded one."""
    first = RECORDED_SEEDS[name].seed if name in RECORDED_SEEDS else 1
    return range(first, first + SEEDS)


@pytest.mark.full
@pytest.mark.parametrize("name", EASY)
def test_a_mutant_is_caught(name: str) -> None:
    assert any(run_seed(seed, name).violation is not None for seed in seeds_of(name))


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    ["overtaken assignment delivered", "parked syncs lost"],
)
def test_a_mutant_of_groups_is_caught(name: str) -> None:
    seeds = [seed for seed in seeds_of(name) if draw(seed).deeds.members]
    assert any(run_seed(seed, name).violation is not None for seed in seeds)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["partitions given before they are released", "revocations not awaited"]
)
def test_a_mutant_of_consumer_groups_is_caught(name: str) -> None:
    seeds = [seed for seed in seeds_of(name) if draw(seed).deeds.consumers]
    assert any(run_seed(seed, name).violation is not None for seed in seeds)


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "aborted transactions committed",
        "aborted transactions indexed past later ones",
        "aborted transactions not indexed",
        "decided transactions not continued",
        "last stable offset past open transactions",
        "offsets of aborted transactions kept",
    ],
)
def test_a_mutant_of_transactions_is_caught(name: str) -> None:
    seeds = [seed for seed in seeds_of(name) if draw(seed).deeds.transactions]
    assert any(run_seed(seed, name).violation is not None for seed in seeds)


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "delete horizons ignored by compaction",
        "last offsets lost by compaction",
        "markers dropped by compaction",
    ],
)
def test_a_mutant_of_compaction_is_caught(name: str) -> None:
    seeds = [seed for seed in seeds_of(name) if draw(seed).deeds.compacts]
    assert any(run_seed(seed, name).violation is not None for seed in seeds)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["epoch kept at a fence", "markers before the decision is committed"]
)
def test_a_mutant_of_the_transaction_coordinator_is_caught(name: str) -> None:
    seeds = [seed for seed in seeds_of(name) if draw(seed).deeds.transactions]
    assert any(run_seed(seed, name).violation is not None for seed in seeds)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [name for name, recorded in RECORDED_SEEDS.items() if recorded.draw is not draw]
)
def test_a_mutant_is_caught_by_its_recorded_seed(name: str) -> None:
    recorded = RECORDED_SEEDS[name]
    assert run_seed(recorded.seed, name, recorded.draw).violation is not None


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_changes_code_that_exists(name: str) -> None:
    with applied(MUTANTS[name]):
        pass


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_takes_the_arguments_of_the_code_that_it_changes(name: str) -> None:
    """Otherwise each call fails, and the simulation finds that instead of the mistake."""
    for mutant in (MUTANTS[name], *MUTANTS[name].besides):
        original = mutant.owner.__dict__[mutant.name]
        changed = mutant.make(original)
        if not isfunction(original) or not isfunction(changed):
            continue
        parameters = signature(original).parameters.values()
        by_name = [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        by_position = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        signature(changed).bind(*by_position, **dict.fromkeys(by_name))


def test_a_mutant_goes_again() -> None:
    name = "acks=all as acks=1"
    mutant = MUTANTS[name]
    before = mutant.owner.__dict__[mutant.name]
    caught = next(n for n in range(1, SEEDS + 1) if run_seed(n, name).violation is not None)
    assert mutant.owner.__dict__[mutant.name] is before
    assert run_seed(caught).violation is None


def test_recorded_seeds_are_those_of_mutants() -> None:
    assert RECORDED_SEEDS.keys() <= MUTANTS.keys()


def test_a_hunt_for_all_mutants_begins_with_the_recorded_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "gaps not verified"
    recorded = RECORDED_SEEDS[name]
    hunted = []

    def run_all(jobs: Any, stop: Any, drawn: Any) -> list[tuple[int, str, SimpleNamespace]]:
        hunted.append((jobs, drawn))
        is_caught = drawn is recorded.draw
        violation = "a partition has no owner" if is_caught else None
        scenario = SimpleNamespace(seed=jobs[0][0])
        return [(*jobs[0], SimpleNamespace(violation=violation, scenario=scenario))]

    monkeypatch.setattr(command, "run_all", run_all)
    monkeypatch.setattr(command, "MUTANTS", [name])
    invocation = CliRunner().invoke(command.main, ["--mutants", "--seeds", "2"])
    assert invocation.exit_code == 0, invocation.output
    assert hunted == [([(recorded.seed, name)], recorded.draw)]
