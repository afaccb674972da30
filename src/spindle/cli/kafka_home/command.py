"""`spindle home DIR`: write the folder."""

import sys
from pathlib import Path

import click

from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.kafka_home.layout import MARKER, write_home


@click.command(
    "home",
    epilog=examples("spindle home ./kafka"),
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def home(folder: Path) -> None:
    """Write a folder shaped like a Kafka installation.

    bin has Kafka's scripts, which run this installation of Spindle; config has property files to
    start from. Suites and scripts that spawn brokers by Kafka's script names run on it unmodified.
    The folder may be moved. Writing into it again renews the scripts and keeps the configuration.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise CommandFailed(f"{folder} is not empty, and was not written by this command")
    write_home(folder, Path(sys.executable))
    click.echo(f"{folder / 'bin'} has Kafka's scripts. Try:")
    click.echo(f"  {folder / 'bin' / 'kafka-topics.sh'} --bootstrap-server localhost:9092 --list")
