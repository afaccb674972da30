"""Runs the console: the poll of the cluster, and the HTTP server."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click
import uvicorn

from spindle.client.blocking.client import WireClient
from spindle.console.app import Console, ConsoleSettings
from spindle.console.cluster_poll import ClusterPoll, SnapshotSource
from spindle.console.sessions import ConsoleSessions


class ListenSettings(NamedTuple):
    """Where the server listens. With a certificate and a key it speaks https."""

    socket: socket.socket
    certificate: Path | None
    key: Path | None

    @property
    def address(self) -> str:
        """The address for a browser."""
        host, port = self.socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"http{'s' if self.certificate else ''}://{shown}:{port}/"


class _Server(uvicorn.Server):
    """A server that a signal ends in order: its event streams end at once, and none is cut."""

    def __init__(self, config: uvicorn.Config, source: SnapshotSource) -> None:
        super().__init__(config)
        self._source = source

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in order; with a second signal at once."""
        self._source.close()
        self.force_exit = self.should_exit
        self.should_exit = True


def serve(
    client: WireClient,
    listen: ListenSettings,
    *,
    hosts: frozenset[str],
    logins: Mapping[str, str],
    local_user: str,
    allows_changes: bool,
    as_json: bool,
) -> None:
    """Serve the console until SIGINT or SIGTERM."""
    source = SnapshotSource()
    poll = ClusterPoll(client, source)
    bootstrap = ",".join(map(str, client.settings.bootstrap_servers))
    settings = ConsoleSettings(
        bootstrap, hosts, allows_changes, is_tls=listen.certificate is not None
    )
    console = Console(source, client.settings, ConsoleSessions(logins, local_user), settings)
    config = uvicorn.Config(
        console.app(),
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=listen.certificate,
        ssl_keyfile=listen.key,
        timeout_graceful_shutdown=2,
    )
    if as_json:
        click.echo(json.dumps({"event": "serving", "address": listen.address}))
    else:
        click.echo(f"The console is at {listen.address}", err=True)
    poll.start()
    try:
        _Server(config, source).run(sockets=[listen.socket])
    finally:
        poll.stop()
        console.close()
