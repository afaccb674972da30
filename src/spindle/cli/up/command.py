"""The command line of `spindle up`."""

from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import WholeRange, parse_key_values
from spindle.cli.up.console_process import is_console_installed
from spindle.cli.up.foreground import ForegroundCluster
from spindle.local.cluster_spec import ClusterSpec
from spindle.local.tcp_ports import MAX_PORT, free_ports, obstacle

_MAX_NODES: Final = 64
_MAX_DIRECTORIES: Final = 64


class _Folder(click.Path):
    """A path that is not empty: `--data "$UNSET"` does not mean the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


@click.command(
    "up",
    epilog=examples(
        "spindle up",
        "spindle up --nodes 3 --racks 3",
        "spindle up --data ./cluster --override num.partitions=3",
        "spindle up --secure --json",
    ),
)
@click.option(
    "--nodes",
    type=WholeRange(1, _MAX_NODES),
    default=1,
    show_default=True,
    help="Number of brokers, each a process of its own. The first three are controllers, too.",
)
@click.option(
    "--dirs",
    type=WholeRange(1, _MAX_DIRECTORIES),
    default=3,
    show_default=True,
    help="Number of log directories of each node.",
)
@click.option(
    "--controllers",
    type=WholeRange(0, _MAX_NODES),
    default=0,
    help="Number of further nodes that are controllers only; the brokers are not controllers then.",
)
@click.option(
    "--racks",
    type=WholeRange(0, _MAX_NODES),
    default=0,
    help="Number of racks; brokers are assigned to them in turn.",
)
@click.option(
    "--port",
    type=WholeRange(0, MAX_PORT),
    default=9092,
    show_default=True,
    help="Port of the first broker; the other brokers and the controllers follow. With 0, free "
    "ports are chosen; the same happens if a default port is in use.",
)
@click.option(
    "--metrics", "with_metrics", is_flag=True, help="Serve /metrics, /health and /ready as well."
)
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="Clients log in over TLS, and ACLs decide what they may do: users admin and app, with "
    "certificates and passwords of this cluster only.",
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of every node's property file.",
)
@click.option(
    "--data",
    type=_Folder(path_type=Path),
    help="Folder of the cluster; it is kept, and the next run starts the cluster in it again.",
)
@click.option("--keep", is_flag=True, help="Keep the temporary folder after the end.")
@click.option(
    "--console/--no-console",
    "with_console",
    default=None,
    help="Serve `spindle console` as well. By default it is served if the extra `console` is "
    "installed, but not with --json or --secure.",
)
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines, for programs.")
@click.pass_context
def up(
    context: click.Context,
    /,
    port: int,
    overrides: tuple[str, ...],
    data: Path | None,
    keep: bool,
    with_console: bool | None,
    as_json: bool,
    **numbers: Any,
) -> int:
    """Start a cluster on this machine and print how to reach it.

    Ctrl-C stops the cluster in order and removes its folder, unless --data or --keep is given. The
    exit code is 0 after an orderly stop. It is 1 if a node did not start or had to be killed, or
    if all nodes ended by themselves.
    """
    spec = ClusterSpec(**numbers, overrides=parse_key_values("--override", overrides))
    if spec.racks > spec.nodes:
        raise click.UsageError(f"--racks {spec.racks} is more than --nodes {spec.nodes}")
    if with_console and spec.is_secure:
        raise click.UsageError(
            "--console is not for --secure: it would show the cluster without a login; run "
            "`spindle console` with --command-config"
        )
    if with_console and not is_console_installed():
        raise CommandFailed(
            "--console needs the extra `console`: pip install 'spindle-log[console]'"
        )
    if with_console is None:
        with_console = is_console_installed() and not as_json and not spec.is_secure
    given = {
        name
        for name in ("port", "overrides", *numbers)
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    cluster = ForegroundCluster(
        data=data, is_kept=keep or data is not None, as_json=as_json, with_console=with_console
    )
    return cluster.run(
        spec, given, lambda: cluster_ports(spec, port, is_wish="port" in given), port
    )


def cluster_ports(spec: ClusterSpec, first: int, *, is_wish: bool) -> list[int]:
    """Return the ports of a new cluster: those from `first` on, and others for those in use.

    Args:
        first: 0 chooses free ports.
        is_wish: the user chose `first`, so no other port is used.

    Raises:
        CommandFailed: a chosen port is in use. click.UsageError: the ports exceed the highest port
        number.
    """
    count = spec.port_count
    if first == 0:
        return free_ports(count)
    if first + count - 1 > MAX_PORT:
        raise click.UsageError(
            f"--port {first}: {count} ports are needed, up to {first + count - 1}, but the highest "
            f"port is {MAX_PORT}"
        )
    wanted = range(first, first + count)
    taken = {port: reason for port in wanted if (reason := obstacle(port))}
    if taken and is_wish:
        worst, reason = next(iter(taken.items()))
        port = "the port" if worst == first else f"port {worst}, which is needed as well,"
        raise CommandFailed(f"--port {first}: {port} {reason}")
    spare = dict(zip(taken, free_ports(len(taken)), strict=True))
    for busy, other in spare.items():
        click.echo(f"port {busy} {taken[busy]}: this cluster uses {other} instead", err=True)
    return [spare.get(number, number) for number in wanted]
