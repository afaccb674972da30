"""Failures of a tool, with the texts of Spindle and of Kafka's tools."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from spindle.client.admin.refusals import exception_class, failure_text
from spindle.client.errors import (
    RequestTimedOut,
    SaslFailed,
    TlsFailed,
    UnsupportedByPeer,
)
from spindle.common.errors import ApiError, ConfigError
from spindle.operations.errors import CLUSTER_FAILURES

_ARGUMENT: Final = "java.lang.IllegalArgumentException"
TERSE: Final = "org.apache.kafka.tools.TerseException"
"""The exception whose text Kafka's tools print without its class."""


class UsageError(Exception):
    """The options do not form a valid command.

    Args:
        message: the text of Kafka's tool, which its scripts show.
        plainly: the text that `spindle` shows; `message` by default.
    """

    def __init__(self, message: str, plainly: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.plainly = message if plainly is None else plainly


class ToolFailed(Exception):
    """The tool cannot do its work.

    Args:
        message: the text of Kafka's tool, which its scripts show.
        java_class: the exception of Kafka's tool in this place; scripts search for it.
        plainly: the text that `spindle` shows; `message` by default.
    """

    def __init__(
        self, message: str, java_class: str = _ARGUMENT, plainly: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.java_class = java_class
        self.plainly = message if plainly is None else plainly


class WrongOptions(ToolFailed):
    """Options are missing, contradict each other, or have wrong values."""


FAILURES: Final = (*CLUSTER_FAILURES, ToolFailed)
"""The exceptions that a tool reports in one line; any other is a bug."""


class ExecutionFailed(Exception):
    """A failure after the options were checked; some of Kafka's tools report it in another way.

    Attributes:
        cause: one of `FAILURES`.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def executing() -> Iterator[None]:
    """Mark the failures of this block as failures of the execution.

    Raises:
        ExecutionFailed: in place of one of `FAILURES`.
    """
    try:
        yield
    except FAILURES as error:
        raise ExecutionFailed(error) from error


class Failure(NamedTuple):
    """The text of a failure and the class under which Kafka's tools print it.

    Attributes:
        plainly: the text that `spindle` shows.
    """

    text: str
    java_class: str
    plainly: str

    def __str__(self) -> str:
        return f"{self.java_class}: {self.text}"


def failure(error: BaseException) -> Failure:
    """Return the texts for one of `FAILURES`."""
    if isinstance(error, ToolFailed):
        return Failure(error.message, error.java_class, error.plainly)
    text = failure_text(error)
    return Failure(text, _java_class(error), text)


def _java_class(error: BaseException) -> str:
    match error:
        case ApiError():
            return exception_class(error.code)
        case ConfigError():
            return "org.apache.kafka.common.config.ConfigException"
        case RequestTimedOut():
            return "org.apache.kafka.common.errors.TimeoutException"
        case SaslFailed():
            return "org.apache.kafka.common.errors.SaslAuthenticationException"
        case TlsFailed():
            return "org.apache.kafka.common.errors.SslAuthenticationException"
        case UnsupportedByPeer():
            return "org.apache.kafka.common.errors.UnsupportedVersionException"
        case OSError(filename=name) if name is not None:
            return "java.io.IOException"
        case _:
            return "org.apache.kafka.common.KafkaException"
