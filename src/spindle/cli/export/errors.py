"""Errors of the export commands in one line each, and options of the form NAME=VALUE."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from spindle.cli.failure import CommandFailed
from spindle.cli.tools.failures import FAILURES, failure

_CONCISE: Final = ("spindle.", "builtins", "pyspark", "py4j", "pyiceberg", "_internal")
"""The modules whose errors are shown by their first line; `_internal` is delta-rs."""


@contextmanager
def concise_errors() -> Iterator[None]:
    """Let an error end the command with its first line, or with the cause in a Spark task.

    Raises:
        CommandFailed: has this line.
    """
    try:
        yield
    except FAILURES as error:
        raise CommandFailed(failure(error).plainly) from None
    except Exception as error:
        if type(error).__module__.startswith(_CONCISE):
            raise CommandFailed(cause_text(error)) from None
        raise


def pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    """Return the names and values of an option that may be given several times.

    Raises:
        click.BadParameter: a word is not NAME=VALUE.
    """
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{option} {word!r}: want NAME=VALUE")
        given[name] = value
    return given


def cause_text(error: BaseException) -> str:
    """Return the line with the cause of a failed export, also from the report of a Spark task."""
    from spindle.pipeline.user_errors import reported_cause

    text = str(error)
    cause = reported_cause(text)
    if cause is not None:
        return cause.text
    return text.splitlines()[0] if text else type(error).__name__
