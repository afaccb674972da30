"""Lines in the layout of the log that Kafka's tools write to standard error."""

import sys
import time

import click


def log_line(level: str, text: str, logger: str) -> None:
    """Print one line to standard error."""
    now = time.time()
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    sys.stdout.flush()
    click.echo(f"[{clock},{int(now * 1000) % 1000:03d}] {level} {text} ({logger})", err=True)
