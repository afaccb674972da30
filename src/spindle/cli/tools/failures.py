"""Why a tool ends without success, and how such a failure reads in Kafka's output."""

from typing import Final, NamedTuple

from spindle.client.admin.refusals import exception_class, refusal_text
from spindle.client.errors import ClientError, RequestTimedOut, UnsupportedByPeer
from spindle.common.errors import ApiError, ConfigError, ProtocolViolation

_ARGUMENT: Final = "java.lang.IllegalArgumentException"


class HelpAsked(Exception):
    """The usage is to be shown under this text."""


class VersionAsked(Exception):
    """The version is to be shown."""


class UsageError(Exception):
    """A combination of options that makes no sense; the usage is shown under the text."""


class ToolFailed(Exception):
    """What was asked for cannot be done.

    Args:
        java_class: the exception of Kafka's tool in this place, which scripts look for.
    """

    def __init__(self, message: str, java_class: str = _ARGUMENT) -> None:
        super().__init__(message)
        self.message = message
        self.java_class = java_class


FAILURES: Final = (
    ApiError,
    ClientError,
    ConfigError,
    OSError,
    ProtocolViolation,
    ToolFailed,
)
"""Everything that a tool reports instead of ending with a trace."""


class Failure(NamedTuple):
    """The text of a failure and the class under which Kafka's tools print it."""

    text: str
    java_class: str

    def __str__(self) -> str:
        return f"{self.java_class}: {self.text}"


def failure(error: BaseException) -> Failure:
    """What a tool prints for one of `FAILURES`."""
    match error:
        case ApiError():
            return Failure(refusal_text(error), exception_class(error.code))
        case ToolFailed():
            return Failure(error.message, error.java_class)
        case ConfigError():
            return Failure(str(error), "org.apache.kafka.common.config.ConfigException")
        case RequestTimedOut():
            return Failure(str(error), "org.apache.kafka.common.errors.TimeoutException")
        case UnsupportedByPeer():
            return Failure(str(error), "org.apache.kafka.common.errors.UnsupportedVersionException")
        case OSError(filename=name, strerror=reason) if name is not None:
            return Failure(f"{name}: {reason}", "java.io.IOException")
        case _:
            return Failure(str(error), "org.apache.kafka.common.KafkaException")
