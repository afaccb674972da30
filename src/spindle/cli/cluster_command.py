"""The options of all native commands that connect to a cluster."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from spindle.cli.failure import CommandFailed
from spindle.cli.option_names import with_option_names
from spindle.cli.shared_options import COMMAND_CONFIG, SERVERS
from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.failures import FAILURES, failure
from spindle.cli.tools.options import WHERE_IS_THE_CLUSTER
from spindle.cli.wait_notes import wait_notes
from spindle.operations.errors import OperationFailed
from spindle.planner.plan import Infeasible

_SERVERS = "bootstrap.servers"


def cluster_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-b`, `--command-config` and `--json` to a command.

    The function receives a connected client and `as_json`, then its own parameters. A failure of
    the client ends the command with one line.
    """

    @SERVERS
    @COMMAND_CONFIG
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @wraps(function)
    def run(servers: str | None, file: str | None, as_json: bool, **rest: Any) -> Any:
        try:
            _refuse_empty_arguments(click.get_current_context())
            properties = properties_of(file)
            if servers is None and _SERVERS not in properties:
                raise click.UsageError(WHERE_IS_THE_CLUSTER, click.get_current_context())
            with connect(servers, properties) as client, wait_notes(client):
                return function(client, as_json, **rest)
        except (OperationFailed, Infeasible) as error:
            raise CommandFailed(_with_notes(str(error), error)) from None
        except FAILURES as error:
            raise CommandFailed(_with_notes(failure(error).plainly, error)) from None

    return run


def _refuse_empty_arguments(context: click.Context) -> None:
    """Refuse an empty name, as from a variable of the shell that is not set.

    Raises:
        click.UsageError: names the argument.
    """
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if isinstance(parameter, click.Argument) and (
            value == "" or (isinstance(value, tuple) and "" in value)
        ):
            raise click.UsageError(
                f"{parameter.make_metavar(context).strip('[].')} is empty", context
            )


def _with_notes(text: str, error: BaseException) -> str:
    """Return the text of a failure, and below it the notes that an operation has added."""
    return with_option_names("\n".join([text, *getattr(error, "__notes__", ())]))
