"""The failure of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CommandFailed(Exception):
    """A command cannot do what the user asked for. The text is the one line that is shown."""


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Name a file in errors of the operating system that name none, such as that of a full disk.

    Raises:
        OSError: the one that was raised inside, with a file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
