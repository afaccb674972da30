"""`spindle disks rebuild`: copy replicas of a running broker again from their leaders."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.parameter_types import PARTITION, WholeRange
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.operations.events import (
    OnProgress,
    ProgressEvent,
    RebuildEnded,
    Rebuilding,
    ignore_progress,
    rebuild_text,
)
from spindle.operations.rebuild_run import cancel_rebuild, rebuild

_LINE_S: Final = 10.0
"""Time between two lines about a replica, if there is no bar."""


@click.command(
    "rebuild",
    epilog=examples(
        "spindle disks rebuild 2 orders-3", "spindle disks rebuild 2 orders-3 --cancel"
    ),
)
@click.argument("broker", type=WholeRange(min=0))
@click.argument("replicas", metavar="TOPIC-PARTITION...", nargs=-1, required=True, type=PARTITION)
@click.option("--cancel", is_flag=True, help="Cancel the rebuilds, and use the old logs again.")
@cluster_command
@click.pass_context
def rebuild_command(
    context: click.Context,
    client: WireClient,
    as_json: bool,
    broker: int,
    replicas: Sequence[TopicPartition],
    cancel: bool,
) -> None:
    """Copy replicas of a running broker again from their leaders, because their logs are damaged.

    Each replica leaves the ISR first, and cannot be elected until it has all committed records
    again. Its old log stays until the new one is in the ISR, and is used again if nothing is
    copied for ten minutes. The command refuses a replica that leads, and one without which the ISR
    would be below min.insync.replicas. It waits for the end; Ctrl-C ends only the command. The exit
    code is 1 if a replica was not rebuilt.
    """
    wanted = list(dict.fromkeys(replicas))
    if cancel:
        ends = cancel_rebuild(client, broker, wanted)
        _show_cancelled(ends, wanted, broker, as_json=as_json)
    else:
        ends = _rebuilt(client, broker, wanted, as_json=as_json)
    if any(not end.is_done for end in ends):
        context.exit(1)


def _show_cancelled(
    refused: Sequence[RebuildEnded], wanted: Sequence[TopicPartition], broker: int, *, as_json: bool
) -> None:
    left = [where for where in wanted if where not in {end.partition for end in refused}]
    if as_json:
        _show_document(refused, broker)
        return
    for end in refused:
        click.echo(end.text, err=True)
    if left:
        click.echo(f"Cancelled: {', '.join(map(str, left))}.")


def _rebuilt(
    client: WireClient, broker: int, wanted: Sequence[TopicPartition], *, as_json: bool
) -> tuple[RebuildEnded, ...]:
    """Show the rebuilds until all have ended; return their results."""
    left = list(wanted)

    try:
        with _shown(is_off=as_json) as show:

            def report(event: ProgressEvent) -> None:
                if isinstance(event, RebuildEnded):
                    left.remove(event.partition)
                    if event.state == "refused" and not as_json:
                        click.echo(event.text, err=True)
                show(event)

            ends = rebuild(client, broker, wanted, on_progress=report)
    except KeyboardInterrupt:
        names = " ".join(map(str, left))
        click.echo(
            f"Broker {broker} continues the rebuild: `spindle disks watch` shows it, and "
            f"`spindle disks rebuild {broker} {names} --cancel` ends it.",
            err=True,
        )
        raise click.Abort from None
    if as_json:
        _show_document(ends, broker)
    for end in ends if not as_json else ():
        if end.state != "refused":
            click.echo(end.text, err=not end.is_done)
    return ends


def _show_document(ends: Sequence[RebuildEnded], broker: int) -> None:
    click.echo(json.dumps({"broker": broker, "replicas": [end.facts for end in ends]}))


@contextmanager
def _shown(*, is_off: bool) -> Iterator[OnProgress]:
    """Yield a function that shows the progress of a rebuild, as a bar or as lines at intervals."""
    if is_off or not sys.stdout.isatty():
        yield ignore_progress if is_off else _Lines()
        return
    columns = (
        TextColumn("{task.fields[name]}"),
        BarColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(highlight=False), transient=True) as bar:
        tasks: dict[TopicPartition, TaskID] = {}

        def show(event: ProgressEvent) -> None:
            if not isinstance(event, Rebuilding):
                return
            view = event.view
            if view.partition not in tasks:
                tasks[view.partition] = bar.add_task("", total=None, name=str(view.partition))
            bar.update(
                tasks[view.partition],
                description=rebuild_text(view),
                total=view.former_bytes or None,
                completed=min(view.copied_bytes, view.former_bytes),
            )

        yield show


class _Lines:
    """Prints a line when the state of a rebuild changes, and at intervals."""

    def __init__(self) -> None:
        self._last: dict[TopicPartition, tuple[str, float]] = {}

    def __call__(self, event: ProgressEvent) -> None:
        if not isinstance(event, Rebuilding) or not event.view.is_under_way:
            return
        view, now_s = event.view, time.monotonic()
        state, at_s = self._last.get(view.partition, ("", 0.0))
        if state != view.state or now_s - at_s > _LINE_S:
            self._last[view.partition] = view.state, now_s
            click.echo(event.text)
