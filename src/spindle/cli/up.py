"""`spindle up`: a throw-away node with several log directories, in one command."""

import socket
from pathlib import Path

import click

from spindle.cli.failure import CommandFailed

_MAX_DIRECTORIES = 64


@click.command("up")
@click.option(
    "--dirs",
    "directory_count",
    type=click.IntRange(1, _MAX_DIRECTORIES),
    default=3,
    show_default=True,
    help="Number of log directories.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port for clients; 0, or a port in use when none was asked for, takes a free one.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder for the directories; it is kept."
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder after the node has stopped.")
@click.pass_context
def up(
    context: click.Context, directory_count: int, port: int, data: Path | None, keep: bool
) -> int:
    """Start a throw-away node on this machine and say how to reach it.

    Ctrl-C stops it and removes its folder, unless --data or --keep says otherwise.
    """
    from spindle.cli.throwaway import ThrowawayNode

    is_wish = context.get_parameter_source("port") is not click.core.ParameterSource.DEFAULT
    node = ThrowawayNode(
        data=data,
        directory_count=directory_count,
        client_port=_client_port(port, is_wish=is_wish),
        controller_port=free_port(),
        keep=keep or data is not None,
    )
    return node.run()


def _client_port(port: int, *, is_wish: bool) -> int:
    if port == 0:
        return free_port()
    if is_free(port):
        return port
    if is_wish:
        raise CommandFailed(f"--port {port}: the port is in use")
    return free_port()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a port of the loopback interface can be listened on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
