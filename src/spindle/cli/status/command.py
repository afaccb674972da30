"""The command line of `spindle status`."""

import json

import click
from click.core import ParameterSource

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.broker_poll import WAIT_MS, Survey
from spindle.cli.examples import examples
from spindle.cli.shared_options import COUNT, interval_option
from spindle.cli.status.cluster_status import take_status, with_left_throttles
from spindle.cli.status.notification import Targets
from spindle.cli.status.screen import status_document, status_lines
from spindle.cli.status.watch import NEEDS_ATTENTION, watch_status
from spindle.client.blocking.client import WireClient


@click.command(
    "status",
    epilog=examples(
        "spindle status -b 127.0.0.1:9092",
        "spindle status --json",
        "spindle status --watch --notify-url https://example.org/hook",
    ),
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C, and print the changes.")
@interval_option(10.0)
@COUNT
@click.option(
    "--notify-command",
    metavar="COMMAND",
    help="With --watch, run this in a shell when problems come or go, with JSON on its input.",
)
@click.option(
    "--notify-url",
    metavar="URL",
    help="With --watch, POST the same JSON to this http or https address.",
)
@cluster_command
def status(
    client: WireClient,
    as_json: bool,
    watch: bool,
    interval_s: float,
    count: int | None,
    notify_command: str | None,
    notify_url: str | None,
) -> int:
    """Show brokers, log directories and partitions, and what needs attention.

    The exit code is 0 if nothing needs attention, 3 if something does, 1 if the cluster could not
    be queried, and 2 if the command line is wrong. Cordoned directories and moves do not count.
    With --watch, a line is printed for each problem that appears or ends, and a notification can be
    sent. A target that fails or hangs receives the changes later, and never delays the next check.
    """
    targets = Targets.of(notify_command, notify_url)
    if not watch:
        interval = click.get_current_context().get_parameter_source("interval_s")
        if targets.any_given or count is not None or interval is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--interval, --count, --notify-command and --notify-url need --watch"
            )
        with WireClient(client.settings.within(WAIT_MS)) as prompt, Survey(prompt) as survey:
            cluster_status = with_left_throttles(prompt, take_status(prompt, survey))
        click.echo(
            json.dumps(status_document(cluster_status))
            if as_json
            else "\n".join(status_lines(cluster_status))
        )
        return NEEDS_ATTENTION if cluster_status.problems() else 0
    return watch_status(client, targets, interval_s, count, as_json=as_json)
