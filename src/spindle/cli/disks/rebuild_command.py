"""`spindle disks rebuild`: replicas of a running broker are copied again from their leaders."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.state_text import rebuild_text
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.numbers import WholeRange
from spindle.cli.partition_type import PARTITION
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.rebuilds import rebuild_replicas
from spindle.client.blocking.client import WireClient
from spindle.client.disks import RebuildView, disks_of_spindle
from spindle.common.ids import TopicPartition
from spindle.common.sizes import size_text
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse

_LOOK_S: Final = 0.5
_SILENCE_S: Final = 60.0
"""Time for a broker that does not answer, for instance because it is restarted."""
_LINE_S: Final = 10.0
"""Time between two lines about a replica, where there is no bar."""
_REFUSED: Final = "refused"
_GONE: Final = (
    "the broker was restarted, or lost the replica: if the replica is there, it follows its leader "
    "with the log that the start found; audit it again"
)

Show = Callable[[RebuildView], None]


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
    refusals = rebuild_replicas(client, broker, wanted, is_cancellation=cancel)
    documents = [
        _document(where, _REFUSED, error=error.message or error.code.name)
        for where, error in refusals.items()
        if error is not None
    ]
    if not as_json:
        for document in documents:
            click.echo(
                f"{document['topic']}-{document['partition']}: refused: {document['error']}",
                err=True,
            )
    begun = [where for where in wanted if refusals.get(where) is None]
    documents += [] if cancel else _followed(client, broker, begun, as_json=as_json)
    if as_json:
        click.echo(json.dumps({"broker": broker, "replicas": documents}))
    elif cancel and begun:
        click.echo(f"Cancelled: {_names(begun)}.")
    if any(document["state"] != "done" for document in documents):
        context.exit(1)


def _followed(
    client: WireClient, broker: int, begun: Sequence[TopicPartition], *, as_json: bool
) -> list[dict[str, Any]]:
    """Show the rebuilds until all have ended; return their ends."""
    ends: dict[TopicPartition, dict[str, Any]] = {}
    try:
        with _shown(begun, is_off=as_json) as show:
            while left := [where for where in begun if where not in ends]:
                rebuild_views = _asked(client, broker)
                for where in left:
                    view = rebuild_views.get(where)
                    if view is None:
                        ends[where] = _document(where, "failed", error=_GONE)
                    elif not view.is_under_way:
                        ends[where] = _ended(view)
                    if view is not None:
                        show(view)
                if len(ends) < len(begun):
                    time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        names = " ".join(str(partition) for partition in begun if partition not in ends)
        click.echo(
            f"Broker {broker} goes on with the rebuild: `spindle disks watch` shows it, and "
            f"`spindle disks rebuild {broker} {names} --cancel` ends it.",
            err=True,
        )
        raise click.Abort from None
    if not as_json:
        for where, end in ends.items():
            if end["error"] is None:
                size = size_text(end["copiedBytes"])
                click.echo(f"{where}: rebuilt and in the ISR again, {size}")
            else:
                click.echo(f"{where}: failed: {end['error']}", err=True)
    return list(ends.values())


def _asked(client: WireClient, broker: int) -> Mapping[TopicPartition, RebuildView]:
    """Return the rebuilds of a broker; wait a while for one that does not answer."""
    ends_s = time.monotonic() + _SILENCE_S
    while True:
        try:
            address = client.metadata(()).broker(str(broker))
            answer = client.ask_spindle(address, DescribeDisksRequest(), DescribeDisksResponse)
            return {
                rebuild_view.partition: rebuild_view
                for rebuild_view in disks_of_spindle(answer).rebuilds
            }
        except FAILURES as error:
            if time.monotonic() > ends_s:
                raise CommandFailed(
                    f"broker {broker} has not answered for {_SILENCE_S:.0f} s, so the end of the "
                    f"rebuild is unknown; `spindle disks watch` shows it: {failure(error).plainly}"
                ) from None
        time.sleep(_LOOK_S)


@contextmanager
def _shown(begun: Iterable[TopicPartition], *, is_off: bool) -> Iterator[Show]:
    """Yield a function that shows how far a rebuild is: as a bar, or as lines now and then."""
    if is_off or not sys.stdout.isatty():
        yield _nothing if is_off else _Lines()
        return
    columns = (
        TextColumn("{task.fields[name]}"),
        BarColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(highlight=False), transient=True) as bar:
        tasks = {where: bar.add_task("begins", total=None, name=str(where)) for where in begun}

        def show(view: RebuildView) -> None:
            bar.update(
                tasks[view.partition],
                description=rebuild_text(view),
                total=view.former_bytes or None,
                completed=min(view.copied_bytes, view.former_bytes),
            )

        yield show


def _nothing(view: RebuildView) -> None:
    """Show nothing."""


class _Lines:
    """Prints a line when the state of a rebuild changes, and after a while."""

    def __init__(self) -> None:
        self._last: dict[TopicPartition, tuple[str, float]] = {}

    def __call__(self, view: RebuildView) -> None:
        state, at_s = self._last.get(view.partition, ("", 0.0))
        now_s = time.monotonic()
        if view.is_under_way and (state != view.state or now_s - at_s > _LINE_S):
            self._last[view.partition] = view.state, now_s
            click.echo(f"{view.partition}: {rebuild_text(view)}")


def _ended(view: RebuildView) -> dict[str, Any]:
    return _document(
        view.partition,
        view.state,
        former_bytes=view.former_bytes,
        copied_bytes=view.copied_bytes,
        error=view.failure,
    )


def _document(
    where: TopicPartition,
    state: str,
    *,
    former_bytes: int | None = None,
    copied_bytes: int | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    return {
        "topic": where.topic,
        "partition": where.partition,
        "state": state,
        "formerBytes": former_bytes,
        "copiedBytes": copied_bytes,
        "error": error,
    }


def _names(replicas: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, replicas))
