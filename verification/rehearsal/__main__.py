"""`python -m verification.rehearsal`: many random schedules, or one again."""

import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from verification.rehearsal.rehearsal import JavaHome, RehearsalOutcome, new_cluster, rehearse
from verification.rehearsal.schedule import draw_schedule

_SCHEDULES_OF_A_CLUSTER = 25
"""Then a new cluster takes over, because logs and metadata grow."""


@click.command()
@click.option("--schedules", default=20, show_default=True, help="How many schedules to play.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
@click.option(
    "--kafka-libs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of Apache Kafka's jars; without it, no Java clients take part.",
)
@click.option("--java", default="java", show_default=True, help="The program that runs them.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files of clusters on which a schedule failed; by default a new one.",
)
def main(schedules: int, seed: int, kafka_libs: Path | None, java: str, keep: Path | None) -> None:
    """Play random schedules of faults on real brokers, under traffic of unmodified clients.

    Disks fail, run full, turn read-only, become slow and are replaced, and come back on the running
    broker or at a restart; brokers are killed, lose power, are paused, restarted and cut off;
    directories are cordoned and replicas moved. A checker knows every acknowledged record and every
    transaction. The exit code is 1 if a record was lost, duplicated or out of order, if compaction
    lost the newest record of a key, if a transaction is visible in part or although it was aborted,
    or if an exactly-once copy is not exact.
    """
    console = Console(highlight=False)
    home = None if kafka_libs is None else JavaHome(java, kafka_libs)
    root = keep or Path(tempfile.mkdtemp(prefix="spindle-rehearsal-"))
    left = list(range(seed, seed + schedules))
    failed: list[int] = []
    acknowledged = delivered = 0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("schedules", total=schedules)
        while left:
            folder = root / f"from-{left[0]}"
            is_fine = True
            with new_cluster(folder) as cluster:
                for _ in range(min(len(left), _SCHEDULES_OF_A_CLUSTER)):
                    number = left.pop(0)
                    outcome = rehearse(draw_schedule(number), cluster, home, str(number))
                    acknowledged += outcome.findings.acknowledged
                    delivered += outcome.findings.delivered
                    is_fine = outcome.is_fine
                    if not is_fine:
                        failed.append(number)
                        _show(console, outcome, folder)
                    elif not console.is_terminal:
                        console.print(
                            f"{number}: {outcome.took_s:.1f} s, {outcome.findings.text}",
                            soft_wrap=True,
                        )
                    progress.update(task, advance=1, description=f"{len(failed)} failed")
                    if not is_fine:
                        break
            if is_fine:
                shutil.rmtree(folder, ignore_errors=True)
    console.print(
        f"{schedules} schedules, {acknowledged:,} records acknowledged, {delivered:,} delivered; "
        f"{len(failed)} failed"
        f"{f': {failed}' if failed else ''}"
    )
    if not failed and keep is None:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(bool(failed))


def _show(console: Console, outcome: RehearsalOutcome, folder: Path) -> None:
    console.print(outcome.report, soft_wrap=True, markup=False)
    console.print(
        f"again: python -m verification.rehearsal --schedules 1 --seed {outcome.schedule.seed}; "
        f"the files and logs of the nodes are in {folder}",
        soft_wrap=True,
        markup=False,
    )


if __name__ == "__main__":
    main()
