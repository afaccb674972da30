"""Each mutant makes a deliberate mistake, and the simulation must find it.

`make test` looks for one; `make simulate MUTANTS=1` runs all of them.
"""

from inspect import Parameter, isfunction, signature

import pytest

from verification.simulation.mutant import applied
from verification.simulation.mutants import MUTANTS
from verification.simulation.pool import run_seed
from verification.simulation.scenario import draw

SEEDS = 60
# Seeds that find these quickly; the seeds behind them follow, for the simulator draws other stories
# when it changes.
FIRST = {
    "aborted transactions indexed past later ones": 13,
    "defaults of brokers not applied": 12,
    "decided transactions not continued": 6,
    "delete horizons ignored by compaction": 223,
    "election outside the ISR": 4,
    "epoch kept at a fence": 190,
    "epochs hidden from leaders": 16,
    "last offsets lost by compaction": 30,
    "markers dropped by compaction": 17,
    "moves without the controller": 16,
    "offsets of aborted transactions kept": 45,
    "overtaken assignment delivered": 9,
    "parked syncs lost": 54,
    "producers forgotten by followers": 13,
    "settings of topics not applied": 27,
    "snapshot with a partition less": 11,
    "truncation below the high watermark": 6,
}
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
    first = FIRST.get(name, 1)
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
