"""Errors of a read whose options are right and whose input is not corrupt."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataLoss(Exception):
    """Offsets of the read are no longer in the log.

    With `failOnDataLoss=false` a read returns the records that are left.
    """


class LogChanged(Exception):
    """The log was truncated or rewritten under a new leader while it was read; read it again."""


class WrongHost(Exception):
    """A log directory of the plan is not on the machine of a task, or cannot be read there."""


class AccessDenied(Exception):
    """A file of a log directory may not be read by the user of this process."""


@contextmanager
def rights_explained() -> Iterator[None]:
    """Turn a PermissionError into AccessDenied, which says what helps."""
    try:
        yield
    except PermissionError as error:
        raise AccessDenied(
            f"{error.filename} may not be read by this user. The files of a broker belong to the "
            "user that runs it: run Spark as this user, give it the right to read, or read through "
            'the brokers with format("spindle")'
        ) from error
