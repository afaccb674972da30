"""The state files of operations: written atomically, and used by one process."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spindle.operations.errors import OperationFailed


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Add the file to errors of the operating system that have none, such as a full disk.

    Raises:
        OSError: the error of the body, with a file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def replace_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON file in one step, so that a kill or a full disk leaves the old or the new one.

    Raises:
        OSError: the file cannot be written; the error names it.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        with naming_file(path), new.open("w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        new.unlink(missing_ok=True)
        raise
    new.replace(path)


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Lock the file against other executions.

    Args:
        what: the operation that uses it, for the error.

    Raises:
        OperationFailed: such an operation is running.
    """
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationFailed(f"another {what} is running, which uses {path}") from None
        # An execution that ended between open and flock has removed the file: another one would
        # create and lock a new file.
        if not lock.exists() or not os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            raise OperationFailed(f"another {what} ended a moment ago: give the command again")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
