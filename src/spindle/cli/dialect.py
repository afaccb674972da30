"""The error style of Kafka's tools: Spindle's sentences, or the texts of Kafka's scripts."""

from enum import Enum
from typing import Final

import click

KAFKA_VERSION: Final = "4.4.0"
"""The release whose tools Spindle follows; `--version` of a tool prints it."""


class Dialect(Enum):
    """The wording of errors and helps, and their exit codes. Options and results are the same."""

    SPINDLE = "spindle"
    KAFKA = "kafka"


def dialect_of(context: click.Context) -> Dialect:
    """Return the dialect of a command; the scripts of `spindle home` have Kafka's."""
    return context.find_object(Dialect) or Dialect.SPINDLE
