"""Many nodes, lost messages, partitions and crashes: nothing committed is ever lost."""

import pytest

from spindle.raft.invariants import InvariantBroken
from verification.simulation.mutant import applied
from verification.simulation.mutants import QUORUM_MUTANTS
from verification.simulation.quorum_cores import QuorumChances, RaftSimulation
from verification.simulation.verdict import InvariantViolated

ROUGH = QuorumChances(loss=0.2, cut_power=0.4, kill=0.4, cut=0.3, snapshot=0.4)
CALM_MS = 6000


def survives(simulation: RaftSimulation, rough_ms: int) -> None:
    """Disturb the cluster, then let it come to rest: it has to be whole again."""
    simulation.run(rough_ms)
    simulation.calm_down()
    simulation.run(CALM_MS)
    simulation.settle(1500)
    simulation.check_converged()


@pytest.mark.parametrize("seed", range(40))
def test_a_static_quorum_survives(seed: int) -> None:
    simulation = RaftSimulation(seed)
    survives(simulation, 4000)
    assert simulation.oracle.end_offset > 30


@pytest.mark.parametrize("seed", range(15))
def test_a_static_quorum_survives_rough_times(seed: int) -> None:
    survives(RaftSimulation(seed, chances=ROUGH), 6000)


@pytest.mark.parametrize("seed", range(30))
def test_a_quorum_that_changes_survives(seed: int) -> None:
    chances = QuorumChances(membership=0.2)
    simulation = RaftSimulation(seed, observer_count=2, is_dynamic=True, chances=chances)
    survives(simulation, 4000)


@pytest.mark.parametrize("seed", range(10))
def test_a_quorum_that_changes_survives_rough_times(seed: int) -> None:
    chances = ROUGH._replace(membership=0.3)
    survives(RaftSimulation(seed, observer_count=2, is_dynamic=True, chances=chances), 6000)


@pytest.mark.parametrize("seed", range(5))
def test_five_voters_survive(seed: int) -> None:
    survives(RaftSimulation(seed, voter_count=5, observer_count=0), 4000)


def test_one_voter_needs_nobody() -> None:
    simulation = RaftSimulation(1, voter_count=1, observer_count=1)
    survives(simulation, 4000)


@pytest.mark.parametrize("name", list(QUORUM_MUTANTS))
def test_a_mutant_is_found(name: str) -> None:
    def violates(seed: int) -> bool:
        chances = ROUGH._replace(membership=0.3)
        simulation = RaftSimulation(seed, observer_count=2, is_dynamic=True, chances=chances)
        try:
            survives(simulation, 6000)
        except (InvariantViolated, InvariantBroken):
            return True
        return False

    with applied(QUORUM_MUTANTS[name]):
        assert any(violates(seed) for seed in range(30))


def test_a_seed_repeats_its_run() -> None:
    ends = []
    for _ in range(2):
        simulation = RaftSimulation(77, chances=ROUGH)
        simulation.run(4000)
        roles = [list(n.quorum.core.recent_roles) for n in simulation.nodes.values() if n.quorum]
        ends.append((simulation.oracle.end_offset, simulation.leaders, roles))
    assert ends[0] == ends[1]
