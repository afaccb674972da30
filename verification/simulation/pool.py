"""Many seeds on all cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context

from verification.simulation.mutant import applied
from verification.simulation.mutants import MUTANTS
from verification.simulation.run import SimulationOutcome, simulate
from verification.simulation.scenario import Scenario, draw


def run_seed(
    seed: int, mutant: str | None = None, draw: Callable[[int], Scenario] = draw
) -> SimulationOutcome:
    """Run the scenario that `draw` makes of a seed, with a mutant applied if one is named.

    Raises:
        KeyError: there is no such mutant.
    """
    if mutant is None:
        return simulate(draw(seed))
    with applied(MUTANTS[mutant]):
        return simulate(draw(seed))


def _run_briefly(
    seed: int, mutant: str | None, draw: Callable[[int], Scenario]
) -> SimulationOutcome:
    """Run one seed; drop the history of a run without a violation."""
    outcome = run_seed(seed, mutant, draw)
    return outcome if outcome.violation is not None else replace(outcome, history=[])


def run_all(
    jobs: Sequence[tuple[int, str | None]],
    stop: Callable[[SimulationOutcome], bool] = lambda outcome: False,
    draw: Callable[[int], Scenario] = draw,
) -> Iterator[tuple[int, str | None, SimulationOutcome]]:
    """Outcomes of (seed, mutant) as they come, until `stop` says that it is enough."""
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_run_briefly, *job, draw): job for job in jobs}
        for future in as_completed(futures):
            outcome = future.result()
            yield *futures[future], outcome
            if stop(outcome):
                pool.shutdown(cancel_futures=True)
                return
