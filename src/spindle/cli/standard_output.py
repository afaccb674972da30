"""Standard output of the process, whose reader may be gone, as with `| head`."""

import io
import os
import signal
import sys
from typing import Any, Final

CLOSED: Final = 128 + signal.SIGPIPE
"""The exit code of a process whose reader has gone: that of programs that SIGPIPE ends."""
_NAME: Final = "standard output"


class StandardOutput(io.RawIOBase):
    """The file behind `sys.stdout`.

    Attributes:
        is_closed: the reader has gone; later failures are not printed.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.is_closed = False

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int | None:
        """Write bytes; an error names standard output."""
        try:
            return os.write(self._descriptor, data)
        except BrokenPipeError:
            self.is_closed = True
            raise
        except OSError as error:
            error.filename = _NAME
            raise


def watch_standard_output() -> StandardOutput | None:
    """Replace the file of `sys.stdout` by a `StandardOutput`; return it, None without a file."""
    stream = sys.stdout
    try:
        raw = StandardOutput(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering if isinstance(stream, io.TextIOWrapper) else False,
    )
    return raw


def drop_standard_output() -> None:
    """Discard the buffered output, so that the interpreter's exit does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
