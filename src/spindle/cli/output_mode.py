"""The two output modes of a tool: `spindle` for people, or like Kafka's tools for scripts."""

from enum import Enum
from typing import Final

import click

KAFKA_VERSION: Final = "4.4.0"
"""The release whose tools Spindle follows; `--version` of a tool prints it."""


class Dialect(Enum):
    """The wording of errors and of some outputs. Options and effects are the same in both."""

    SPINDLE = "spindle"
    KAFKA = "kafka"


def dialect_of(context: click.Context) -> Dialect:
    """Return the dialect of a command; the scripts of `spindle home` choose Kafka's."""
    return context.find_object(Dialect) or Dialect.SPINDLE
