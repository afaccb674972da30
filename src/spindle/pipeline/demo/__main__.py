"""The command: `make demo`, or `python -m spindle.pipeline.demo [--dir DIR] [--keep]`."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click

from spindle.client.errors import ClientError
from spindle.common.errors import ApiError
from spindle.pipeline.demo.dying_disk import DyingDisk
from spindle.pipeline.demo.flights import MissingInput
from spindle.pipeline.demo.node import DemoError, DemoLayout, DemoNode
from spindle.pipeline.demo.screen import Screen
from spindle.pipeline.demo.sending import TOPIC
from spindle.pipeline.demo.tour import Tour
from spindle.pipeline.spark.java import NoJava

_INTERRUPTED: Final = 130


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-data"),
    show_default=True,
    help="Where the node, its disks and the Delta table live. Emptied if a demo made it.",
)
@click.option("--keep", is_flag=True, help="Leave the node running, as KEEP=1 does.")
def main(directory: Path, keep: bool) -> None:
    """Run Spindle's main job from end to end, on the flights that left New York in 2013."""
    is_kept = keep or os.environ.get("KEEP", "") not in ("", "0")
    sys.exit(run(Screen(), directory.absolute(), is_kept))


def run(screen: Screen, directory: Path, keep: bool) -> int:
    """Run the demo, stop every process that it started, and return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    layout = DemoLayout(directory)
    node = DemoNode(layout)
    exit_code = _INTERRUPTED
    try:
        screen.title("Spindle: Kafka's protocol and disks in Python, with Spark on top")
        layout.make_empty()
        tour = Tour(screen, layout, node)
        is_equal = tour.run()
        screen.title("\nAnd now on three brokers, while a disk dies")
        is_equal &= DyingDisk(screen, layout, tour.session).run()
        exit_code = 0 if is_equal else 1
        if exit_code:
            screen.failure("a copy differs from the input, see the table above")
        else:
            _show_what_is_where(screen, layout, node, keep)
    except (DemoError, MissingInput, NoJava, ApiError, ClientError) as error:
        screen.failure(str(error))
        exit_code = 1
    except KeyboardInterrupt:
        screen.failure("interrupted; the node is stopped and what the demo made is removed")
    finally:
        # A second Ctrl-C must not interrupt the clean-up.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _stop_spark()
        if not keep or exit_code:
            node.stop()
        _end_children(but=node.pid)
        if exit_code == _INTERRUPTED:
            layout.remove()
    return exit_code


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _stop_spark() -> None:
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def _end_children(*, but: int | None) -> None:
    """Stop other processes of this demo: a Java that was interrupted while it started lives on."""
    for pid in _children():
        if pid != but:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _children() -> list[int]:
    """Return the child processes of this thread that have not been waited for (Linux only)."""
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]
    except OSError:
        return []


def _show_what_is_where(screen: Screen, layout: DemoLayout, node: DemoNode, keep: bool) -> None:
    root = _from_here(layout.root)
    screen.title("\nWhere everything is")
    rows = [
        (
            ", ".join(_from_here(directory) for directory in layout.log_directories),
            "the log directories",
        ),
        (_from_here(layout.delta_table), "the Delta table"),
        (_from_here(layout.cluster), "the disks and logs of the three brokers, which are stopped"),
        (_from_here(layout.cluster_delta_table), "the Delta table of the disks that were left"),
        (_from_here(layout.properties), "the node's configuration"),
        (_from_here(layout.server_log), "the node's log"),
        (_from_here(layout.spark_log), "what Spark had to say"),
    ]
    screen.table(("path", "what"), rows)
    screen.title("What to try next")
    spindle = _from_here(Path(sys.executable).with_name("spindle"))
    if keep:
        screen.say(f"The node is still running at {node.bootstrap_servers}. Stop it:")
        screen.command(f"kill $(cat {_from_here(layout.pid_file)})")
    else:
        screen.say("The node is stopped. Start it again, on the same directories:")
        screen.command(f"{spindle} server start {_from_here(layout.properties)}")
    screen.say("A Spark session of your own:")
    screen.command(
        f"{_from_here(Path(sys.executable))} -i -c "
        "'from spindle.pipeline.spark.session import get_spark; spark = get_spark()'"
    )
    screen.say("In it, read through the broker, or the disks without any node:")
    for source in (
        f'"spindle").option("kafka.bootstrap.servers", "{node.bootstrap_servers}")',
        f'"spindle-segments").option("logDirs", "{root}/disk*")',
    ):
        screen.command(f'spark.read.format({source}.option("subscribe", "{TOPIC}").load().show()')
    if not keep:
        screen.say("Run the demo again and leave the node running:")
        screen.command("make demo KEEP=1")


def _from_here(path: Path) -> str:
    """Return the path relative to the current directory if it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


if __name__ == "__main__":
    main()
