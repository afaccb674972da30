"""The command line of `spindle console`."""

import getpass
import ipaddress
import socket
from pathlib import Path
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import WholeRange
from spindle.cli.up.console_process import is_console_installed
from spindle.client.blocking.client import WireClient
from spindle.common.text import error_text
from spindle.local.tcp_ports import MAX_PORT

_PORT: Final = 9088
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE: Final = ("0.0.0.0", "::")


@click.command(
    "console",
    epilog=examples(
        "spindle console -b 127.0.0.1:9092",
        "spindle console -b kafka1:9092 --allow-changes",
        "spindle console -b kafka1:9092 --host 0.0.0.0 --host-name ops.example.org "
        "--certificate cert.pem --key key.pem --logins logins.txt",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=WholeRange(0, MAX_PORT),
    default=_PORT,
    show_default=True,
    help="Port to listen on; 0 chooses a free one.",
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="A name under which browsers reach the console. May be repeated.",
)
@click.option("--allow-changes", is_flag=True, help="Run actions; without it they are only shown.")
@click.option(
    "--logins",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Who may log in: lines NAME:PASSWORD, in a file that only its owner may read.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Certificate chain (PEM) for https.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Private key (PEM) of the certificate.",
)
@click.option("--fd", type=WholeRange(0), hidden=True, help="A socket that listens already.")
@cluster_command
def console(
    client: WireClient,
    as_json: bool,
    host: str,
    port: int,
    host_names: tuple[str, ...],
    allow_changes: bool,
    logins: Path | None,
    certificate: Path | None,
    key: Path | None,
    fd: int | None,
) -> None:
    """Show the cluster in a browser, live: brokers, directories, topics.

    The page is for this machine only unless --host names another address; then --certificate, --key
    and --logins are needed. It works with clusters of Apache Kafka, too. Ctrl-C ends it.
    """
    if not is_console_installed():
        raise CommandFailed(
            "spindle console needs the extra `console`: pip install 'spindle-log[console]'"
        )
    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key belong together")
    for option, file in (("--certificate", certificate), ("--key", key), ("--logins", logins)):
        if file is not None and not file.is_file():
            raise click.UsageError(f"{option} {file}: there is no such file")
    _check_reach(host, is_safe=certificate is not None and logins is not None)
    from spindle.console.serving import ListenSettings, serve
    from spindle.console.sessions import read_logins

    names = frozenset({*_LOOPBACK_NAMES, *(name.lower() for name in host_names)})
    if host not in _EVERYWHERE:
        names |= {host.lower()}
    # `spindle up` binds the socket itself, on the loopback interface.
    listening = _socket(host, port) if fd is None else socket.socket(fileno=fd)
    listen = ListenSettings(listening, certificate, key)
    passwords = {} if logins is None else read_logins(logins)
    serve(
        client,
        listen,
        hosts=names,
        logins=passwords,
        local_user=_local_user(),
        allows_changes=allow_changes,
        as_json=as_json,
    )


def _check_reach(host: str, *, is_safe: bool) -> None:
    """Refuse an address that other machines reach without TLS and logins.

    Raises:
        click.UsageError: names the options that are missing.
    """
    if not is_safe and not is_loopback(host):
        raise click.UsageError(
            f"--host {host} can be reached from other machines: give --certificate, --key and "
            "--logins, too"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        CommandFailed: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # Connections wait from now on, so that the printed address can be opened at once.
        listening.listen()
    except OSError as error:
        raise CommandFailed(f"--host {host} --port {port}: {error_text(error)}") from None
    return listening


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "local user"
