"""`spindle home DIR`: write a folder shaped like a Kafka installation.

Test suites read the version of Kafka from the names of the jars in `libs`. The jars here are empty
archives that name the release whose behaviour Spindle follows; nothing loads them.
"""

import sys
from pathlib import Path
from typing import Final

import click

from spindle import __version__
from spindle.cli.dialect import KAFKA_VERSION
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.kafka_home.config_files import CONFIG_FILES
from spindle.cli.kafka_home.scripts import script_texts

MARKER: Final = "SPINDLE"
_JARS: Final = (f"kafka_2.13-{KAFKA_VERSION}.jar", f"kafka-clients-{KAFKA_VERSION}.jar")
# A zip archive without entries is its end record alone.
_EMPTY_ARCHIVE: Final = b"PK\x05\x06" + bytes(18)
_EXECUTABLE: Final = 0o755


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


def write_home(folder: Path, python: Path) -> None:
    """Write scripts, configuration and version into a folder, which is made if it is missing.

    Property files that exist are kept.

    Args:
        python: the interpreter that the scripts run.

    Raises:
        OSError: something cannot be written.
    """
    for name in ("bin", "config", "libs", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in script_texts(python).items():
        path = folder / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(_EXECUTABLE)
    for name, text in CONFIG_FILES.items():
        path = folder / "config" / name
        if not path.exists():
            path.write_text(text, encoding="utf-8")
    for name in _JARS:
        (folder / "libs" / name).write_bytes(_EMPTY_ARCHIVE)
    (folder / "VERSION").write_text(f"{KAFKA_VERSION}\n", encoding="utf-8")
    (folder / MARKER).write_text(f"Written by spindle {__version__}\n", encoding="utf-8")
