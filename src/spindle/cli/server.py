"""`spindle server start`: run one node in the foreground until a signal stops it."""

import gc
import os
import sys

import click

from spindle.cli.examples import examples
from spindle.cli.parameter_types import parse_key_values
from spindle.cli.suggestions import SuggestingGroup
from spindle.config.node_config import load_node_config


class _ServerGroup(SuggestingGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and os.path.isfile(args[0]):
            raise click.UsageError(f"The command is missing: spindle server start {args[0]}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_ServerGroup, epilog=examples("spindle server start server.properties"))
def server() -> None:
    """Run a node."""


@server.command(
    "start",
    short_help="Run the node of a property file.",
    epilog=examples("spindle server start server.properties"),
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Replaces a key of FILE."
)
def start(file: str, overrides: tuple[str, ...]) -> int:
    """Run the node of the property file FILE until SIGTERM, SIGHUP or Ctrl-C.

    Exits with 143 after a clean stop by SIGTERM, with 129 after SIGHUP, with 130 after Ctrl-C, and
    with 1 if the node cannot start. SIGHUP is ignored under nohup.
    """
    # Modules and configuration are never freed: searching them for garbage would take a quarter of
    # the import time.
    gc.disable()
    try:
        config = load_node_config(file, parse_key_values("--override", overrides), must_run=True)
        for warning in config.warnings:
            click.echo(f"WARN {warning}", err=True)
        # Imported here, because no other command needs the server.
        from spindle.runtime.process import run_node

        gc.freeze()
    finally:
        gc.enable()

    code = run_node(config)
    if code == 1:
        # A directory's thread may hang on a dead disk; the process must end in any case.
        sys.stdout.flush()
        os._exit(code)
    return code
