"""`python -m verification.simulation`: many seeds, or one again."""

import sys
from collections.abc import Callable, Sequence

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from verification.simulation.mutants import MUTANTS
from verification.simulation.pool import run_all, run_seed
from verification.simulation.recorded_seeds import RECORDED_SEEDS
from verification.simulation.run import SimulationOutcome
from verification.simulation.scenario import (
    Scenario,
    draw,
    draw_cleaning,
    draw_disks,
    draw_lanes,
    draw_shares,
)

_SHOWN_LINES = 150
_DRAWN = {
    "": draw,
    " --cleaning": draw_cleaning,
    " --disks": draw_disks,
    " --lanes": draw_lanes,
    " --shares": draw_shares,
}


@click.command()
@click.option("--seeds", default=200, show_default=True, help="How many seeds to run.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Run this seed only and show its history.")
@click.option("--lines", default=_SHOWN_LINES, show_default=True, help="Lines of history to show.")
@click.option("--mutant", type=click.Choice(sorted(MUTANTS)), help="Break Spindle in this way.")
@click.option(
    "--mutants",
    is_flag=True,
    help="Every mutant has to be caught, by its recorded seed or within the seeds.",
)
@click.option("--disks", is_flag=True, help="Clusters in which little but directories fails.")
@click.option("--cleaning", is_flag=True, help="Clusters that die while compaction works.")
@click.option("--lanes", is_flag=True, help="Clusters with native lanes, in which nothing is lost.")
@click.option("--shares", is_flag=True, help="Clusters with workers of a share group.")
def main(
    seeds: int,
    first: int,
    seed: int | None,
    lines: int,
    mutant: str | None,
    mutants: bool,
    disks: bool,
    cleaning: bool,
    lanes: bool,
    shares: bool,
) -> None:
    """Simulate deterministic cluster simulation with faults, one per seed.

    The exit code is 1 if an invariant was violated; for mutants, if one was not caught.
    """
    console = Console(highlight=False)
    kinds = {
        " --cleaning": cleaning,
        " --disks": disks,
        " --lanes": lanes,
        " --shares": shares,
    }
    kind = next((option for option, is_chosen in kinds.items() if is_chosen), "")
    drawn = _DRAWN[kind]
    if seed is not None:
        outcome = run_seed(seed, mutant, drawn)
        _show(console, outcome, mutant, lines, kind)
        sys.exit(outcome.violation is not None)
    numbers = range(first, first + seeds)
    if mutants:
        sys.exit(not _catch_all(console, numbers, drawn))
    failed = _run(console, numbers, mutant, drawn)
    for outcome in failed[:3]:
        _show(console, outcome, mutant, lines, kind)
    if failed:
        console.print(f"{len(failed)} of {seeds} seeds failed: {_numbers(failed)}")
    sys.exit(bool(failed))


def _run(
    console: Console, numbers: Sequence[int], mutant: str | None, drawn: Callable[[int], Scenario]
) -> list[SimulationOutcome]:
    failed: list[SimulationOutcome] = []
    events = acknowledged = 0
    simulated_s = 0.0
    with _progress(console) as progress:
        task = progress.add_task("seeds", total=len(numbers))
        jobs = [(number, mutant) for number in numbers]
        for _, _, outcome in run_all(jobs, draw=drawn):
            events += outcome.events
            acknowledged += outcome.acknowledged
            simulated_s += outcome.simulated_s
            if outcome.violation is not None:
                failed.append(outcome)
                console.print(f"seed {outcome.scenario.seed}: {outcome.violation}")
            progress.update(task, advance=1, description=f"seeds, {len(failed)} failed")
    console.print(
        f"{len(numbers)} seeds, {simulated_s / 3600:.1f} hours of cluster time, {events:,} events, "
        f"{acknowledged:,} records acknowledged"
    )
    return failed


def _catch_all(console: Console, numbers: Sequence[int], drawn: Callable[[int], Scenario]) -> bool:
    """Return whether each mutant was caught by one of the seeds."""
    missed = []
    with _progress(console) as progress:
        task = progress.add_task("mutants", total=len(MUTANTS))
        for name in sorted(MUTANTS):
            caught = _catch(name, numbers, drawn)
            if caught is None:
                missed.append(name)
                console.print(f"{name}: not caught by {len(numbers)} seeds")
            else:
                console.print(f"{name}: seed {caught.scenario.seed}: {caught.violation}")
            progress.update(task, advance=1)
    return not missed


def _catch(
    name: str, numbers: Sequence[int], drawn: Callable[[int], Scenario]
) -> SimulationOutcome | None:
    """Return a run that catches the mutant; None if neither its recorded seed nor others do."""
    hunts = [([(number, name) for number in numbers], drawn)]
    if recorded := RECORDED_SEEDS.get(name):
        hunts.insert(0, ([(recorded.seed, name)], recorded.draw))
    for jobs, draw_one in hunts:
        caught = None
        for _, _, outcome in run_all(jobs, lambda o: o.violation is not None, draw_one):
            if outcome.violation is not None:
                caught = outcome
        if caught is not None:
            return caught
    return None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def _show(
    console: Console, outcome: SimulationOutcome, mutant: str | None, lines: int, kind: str
) -> None:
    for line in outcome.history[-lines:]:
        console.print(line, soft_wrap=True, markup=False)
    console.print(outcome.scenario.text, soft_wrap=True, markup=False)
    if outcome.violation is None:
        console.print(
            f"fine: {outcome.simulated_s:.1f} s of cluster time, {outcome.events:,} events, "
            f"{outcome.acknowledged:,} records acknowledged"
        )
        return
    console.print(outcome.violation, soft_wrap=True, markup=False)
    again = f"python -m verification.simulation{kind} --seed {outcome.scenario.seed}"
    console.print(f"again: {again}{f' --mutant {mutant!r}' if mutant else ''}", soft_wrap=True)


def _numbers(failed: Sequence[SimulationOutcome]) -> str:
    return ", ".join(str(n) for n in sorted(outcome.scenario.seed for outcome in failed)[:30])


if __name__ == "__main__":
    main()
