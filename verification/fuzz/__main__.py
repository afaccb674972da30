"""`python -m verification.fuzz`: hostile input for a node, from a seed."""

import asyncio
import logging
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import click

from verification.fuzz.run import FuzzOutcome, FuzzPlan, run, write_cases
from verification.fuzz.secured.run import run_secured
from verification.fuzz.secured.target import SecuredNode
from verification.fuzz.target import TargetNode
from verification.fuzz.wire import Finding


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="How long to run.")
@click.option("--seed", type=int, help="Seed of the run; a random one is chosen and printed.")
@click.option("--bootstrap", help="host:port of a running node; without it one is started.")
@click.option("--attackers", default=4, show_default=True, help="Connections at the same time.")
@click.option("--first-case", default=0, show_default=True, help="First case of the seed.")
@click.option("--last-case", type=int, help="Last case of the seed; for repeating a part of a run.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for the log and the cases.")
@click.option("--controller", is_flag=True, help="Attack the controller's port.")
@click.option("--secure", is_flag=True, help="Attack a node with TLS, logins and ACLs.")
def main(
    seconds: float,
    seed: int | None,
    bootstrap: str | None,
    attackers: int,
    first_case: int,
    last_case: int | None,
    keep: Path | None,
    controller: bool,
    secure: bool,
) -> None:
    """Send valid, damaged and senseless requests to a node and look for harm.

    The exit code is 1 if something was found; seed, case and bytes are printed then. It is 2 if
    the machine was too busy for the node to answer within a limit of time.
    """
    if secure and (bootstrap is not None or controller):
        raise click.UsageError("--secure starts a node of its own, and attacks its brokers' port")
    # The event loop warns of each write to a connection that the node has closed.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    seed = secrets.randbits(31) if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="spindle-fuzz-") as temporary:
        node: TargetNode | None = None
        if bootstrap is None:
            node = SecuredNode(Path(temporary)) if secure else TargetNode(Path(temporary))
            node.start()
            host, port = node.host, node.controller_port if controller else node.port
        else:
            host, _, number = bootstrap.rpartition(":")
            port = int(number)
        plan = FuzzPlan(
            host,
            port,
            seed,
            seconds,
            attackers,
            first_case,
            last_case,
            is_controller=controller,
        )
        click.echo(f"seed {seed}, {host}:{port}, {seconds:.0f} s")
        try:
            if isinstance(node, SecuredNode):
                outcome = asyncio.run(run_secured(plan, node))
            else:
                outcome = asyncio.run(run(plan, node))
        finally:
            _stop(node)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            write_cases(outcome, keep / "cases.txt")
            if node is not None:
                shutil.copy(node.output, keep / "node.log")
    _report(outcome)
    sys.exit(1 if outcome.finding is not None else 2 if outcome.time_limit is not None else 0)


def _stop(node: TargetNode | None) -> None:
    if node is not None:
        try:
            node.stop()
        except Finding as finding:
            click.echo(str(finding))


def _report(outcome: FuzzOutcome) -> None:
    click.echo(
        f"{outcome.cases} cases over {outcome.turns} pairs of API and version, "
        f"{outcome.answers} answers, {outcome.logins} hostile logins that succeeded, "
        f"memory +{outcome.grown_bytes >> 20} MiB, "
        f"canary {len(outcome.latencies_ms)} requests, p50 {outcome.quantile_ms(0.5):.1f} ms, "
        f"p99 {outcome.quantile_ms(0.99):.1f} ms, longest {outcome.quantile_ms(1):.0f} ms"
    )
    if outcome.finding is None:
        if outcome.time_limit is not None:
            click.echo(f"ended by a time limit on a busy machine: {outcome.time_limit}")
        click.echo("nothing found")
        return
    click.echo(f"FOUND with --seed {outcome.seed}: {outcome.finding}")
    click.echo("the last cases:")
    for case in list(outcome.recent)[-8:]:
        click.echo(f"  --first-case {case.number}: {case.title}\n    {case.data[:512].hex()}")


if __name__ == "__main__":
    main()
