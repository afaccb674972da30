"""The options of the data source `spindle` that connect to a cluster, from those of a command."""

from collections.abc import Mapping

import click

_SERVERS = "kafka.bootstrap.servers"


def client_options(
    servers: str | None, properties: Mapping[str, str], *, are_needed: bool = True
) -> dict[str, str]:
    """Return the addresses of the brokers and the properties of the client as options.

    Args:
        properties: Those of the property file.
        are_needed: False for a command that can do without brokers.

    Raises:
        click.UsageError: there is no address.
    """
    options = {f"kafka.{name}": value for name, value in properties.items()}
    if servers is not None:
        options[_SERVERS] = servers
    if are_needed and _SERVERS not in options:
        raise click.UsageError(
            "no source is given: give --bootstrap-server HOST:PORT or --log-dir DIR",
            click.get_current_context(),
        )
    return options
