"""The options of commands that connect to a cluster: addresses of brokers, properties of the
client."""

from typing import Final

import click

from spindle.cli.tools.options import BOOTSTRAP_VARIABLE

SERVERS: Final = click.option(
    "-b",
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT,...",
    envvar=BOOTSTRAP_VARIABLE,
    show_envvar=True,
    callback=lambda context, parameter, value: (value or "").strip() or None,
    help="Addresses of brokers.",
)
COMMAND_CONFIG: Final = click.option(
    "--command-config", "file", metavar="FILE", help="Property file of the client."
)
