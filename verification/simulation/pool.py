"""Many seeds on all cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context, parent_process
from threading import Thread

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


def worker_pool() -> ProcessPoolExecutor:
    """Return a pool with a process for each core; the processes end with this one."""
    return ProcessPoolExecutor(
        os.cpu_count() or 1, mp_context=get_context("spawn"), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    """End this process when its parent ends, even if the parent was killed.

    Otherwise a worker would run its seed to the end, and then wait for the next one forever.
    """
    parent = parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    Thread(target=end, name="parent", daemon=True).start()


def run_all(
    jobs: Sequence[tuple[int, str | None]],
    stop: Callable[[SimulationOutcome], bool] = lambda outcome: False,
    draw: Callable[[int], Scenario] = draw,
) -> Iterator[tuple[int, str | None, SimulationOutcome]]:
    """Outcomes of (seed, mutant) as they come, until `stop` says that it is enough."""
    with worker_pool() as pool:
        futures = {pool.submit(_run_briefly, *job, draw): job for job in jobs}
        for future in as_completed(futures):
            outcome = future.result()
            yield *futures[future], outcome
            if stop(outcome):
                pool.shutdown(cancel_futures=True)
                return
