"""Errors as a user of Spark meets them: one sentence, and the line of the code that raised it.

Spark turns an exception of a Python source into a text with the whole traceback, and PySpark shows
that text after the traceback of the program. `PlainErrors` shortens exceptions whose sentence says
all that a user needs; others, which are mistakes in the code, keep their traceback.
"""

import linecache
import re
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Final, NamedTuple

_CALLED_BY_SPARK: Final = frozenset(
    (
        *("schema", "reader", "streamReader", "writer", "streamWriter"),
        *("partitions", "read", "write", "commit", "abort"),
        *("initialOffset", "latestOffset", "reportLatestOffset", "prepareForTriggerAvailableNow"),
    )
)
_BUILTIN: Final = (ValueError, ImportError)
_BUILTIN_NAMES: Final = tuple(kind.__name__ for kind in _BUILTIN)
_TRACEBACK: Final = "Traceback (most recent call last)"
_JAVA_FRAME: Final = "\n\tat "
_RAISE: Final = "raise "
_LAST_CODE: Final = re.compile(r"\n {4}(\S.*)\n(?: +[~^]+\n)?\Z")
"""The last line of code of a traceback, before the line of its exception."""
_CAUSE: Final = re.compile(r"^((?:\w+\.)*\w+): (.+?)(?:\n\n|\n?\Z)", re.MULTILINE | re.DOTALL)


class PlainErrors:
    """A base of the classes whose methods Spark calls, before the one of PySpark."""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        for name in _CALLED_BY_SPARK & vars(cls).keys():
            setattr(cls, name, plainly(vars(cls)[name]))


def plainly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function, or a generator function, that raises its plain errors shortened."""

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            result = method(*arguments, **named)
        except Exception as error:
            if not is_plain(error):
                raise
            raise shortened(error) from None
        return _plain_items(result) if isinstance(result, Iterator) else result

    return call


def _plain_items(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except Exception as error:
        if not is_plain(error):
            raise
        raise shortened(error) from None


def is_plain(error: BaseException) -> bool:
    """Return True if the text of an error says what is wrong without its traceback.

    It does not if the error came up while another one was handled, such as that of a full disk, or
    if Python raised it at a line that was not meant to fail, such as one with too few values.
    """
    handled = None if error.__suppress_context__ else error.__context__
    if handled is not None and not is_plain(handled):
        return False
    if type(error) in _BUILTIN:
        return _is_raised_on_purpose(error)
    return type(error).__module__.startswith("spindle.")


def shortened(error: Exception) -> Exception:
    """Return the error with only the last entry of its traceback."""
    return error.with_traceback(_last_entry(error))


def _last_entry(error: BaseException) -> TracebackType | None:
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    return entry


def _is_raised_on_purpose(error: BaseException) -> bool:
    entry = _last_entry(error)
    if entry is None:
        return True
    code = linecache.getline(entry.tb_frame.f_code.co_filename, entry.tb_lineno)
    return code.lstrip().startswith(_RAISE)


class ReportedCause(NamedTuple):
    """The exception of a task in a report of Spark.

    Attributes:
        kind: Its class, with the module.
        is_alone: False if another exception led to it; the report has that one, too.
        code: The line that raised it, empty if the report has none.
    """

    kind: str
    text: str
    is_alone: bool = True
    code: str = ""

    @property
    def is_plain(self) -> bool:
        """True if the text says what is wrong without the traceback."""
        if self.kind in _BUILTIN_NAMES:
            return self.is_alone and self.code.startswith(_RAISE)
        return self.is_alone and self.kind.startswith("spindle.")


def reported_cause(report: str) -> ReportedCause | None:
    """Return the exception behind a report of Spark about a failed task, None if it has none."""
    begin = report.find(_TRACEBACK)
    _, *tracebacks = report[begin:].partition(_JAVA_FRAME)[0].split(_TRACEBACK)
    match = _CAUSE.search(tracebacks[-1]) if begin >= 0 else None
    if match is None:
        return None
    code = _LAST_CODE.search(tracebacks[-1][: match.start()])
    return ReportedCause(match[1], match[2], len(tracebacks) == 1, code[1] if code else "")
