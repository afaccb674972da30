"""Errors as Spark hands them on: a sentence and one line of code, mistakes with all of it."""

import traceback
from collections.abc import Callable, Generator, Iterator

import pytest

from spindle.pipeline.errors import DataLoss
from spindle.pipeline.user_errors import PlainErrors, plainly, reported_cause

POSITIONS: dict[str, int] = {}


def lose() -> None:
    try:
        POSITIONS["offset"]
    except KeyError as error:
        raise DataLoss("offsets 3 to 4 are gone") from error


def mistake() -> None:
    POSITIONS["offset"]


def miss_a_value() -> None:
    _first, _second = POSITIONS.values()


def refuse() -> None:
    raise ValueError(
        "option startingOffsets: no"
    )  # fmt: skip


def fill_the_disk() -> None:
    try:
        raise OSError(28, "No space left on device")
    finally:
        raise ValueError("I/O operation on closed file")


class Reader(PlainErrors):
    """Has methods that Spark calls."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def partitions(self) -> list[int]:
        self._work()
        return [1]

    def read(self, rows: int) -> Iterator[int]:
        yield from range(rows)
        self._work()


class OtherReader(Reader):
    """Overrides one of them."""

    def partitions(self) -> list[int]:
        return [*super().partitions(), 2]


@pytest.mark.parametrize("kind", [Reader, OtherReader])
def test_an_error_of_ours_has_its_sentence_and_its_line_only(kind: type[Reader]) -> None:
    calls: list[Callable[[], object]] = [
        lambda: kind(lose).partitions(),
        lambda: list(kind(lose).read(2)),
    ]
    for call in calls:
        with pytest.raises(DataLoss, match=r"^offsets 3 to 4 are gone$") as caught:
            call()
        text = "".join(traceback.format_exception(caught.value))
        assert "KeyError" not in text
        assert [frame.name for frame in caught.traceback][-1] == "lose"
        assert "self._work()" not in text


def test_a_mistake_in_the_code_keeps_its_traceback() -> None:
    with pytest.raises(KeyError) as caught:
        list(Reader(mistake).read(2))
    assert [frame.name for frame in caught.traceback][-2:] == ["read", "mistake"]


def test_an_error_that_python_raised_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="not enough values") as caught:
        list(Reader(miss_a_value).read(2))
    assert [frame.name for frame in caught.traceback][-2:] == ["read", "miss_a_value"]
    cause = reported_cause("".join(traceback.format_exception(caught.value)))
    assert cause is not None
    assert not cause.is_plain


def test_an_error_that_a_line_raises_has_this_line_only() -> None:
    with pytest.raises(ValueError, match="startingOffsets: no") as caught:
        list(Reader(refuse).read(2))
    assert "read" not in [frame.name for frame in caught.traceback]
    cause = reported_cause("".join(traceback.format_exception(caught.value)))
    assert cause is not None
    assert cause.is_plain


def test_rows_come_one_by_one_and_a_reader_can_be_closed_early() -> None:
    rows = Reader(lose).read(2)
    assert next(rows) == 0
    assert isinstance(rows, Generator)
    rows.close()


def test_the_cause_of_a_failed_task_is_found_in_sparks_report() -> None:
    try:
        plainly(lose)()
    except DataLoss:
        report = "[PYTHON_EXCEPTION] An exception was thrown\n" + traceback.format_exc()
    cause = reported_cause(report + "\n\tat org.apache.spark.api\n")
    assert cause is not None
    assert (cause.text, cause.is_plain) == ("offsets 3 to 4 are gone", True)
    other = reported_cause('Traceback (most recent call last):\n  File "x"\nKeyError: 3\n')
    assert other is not None
    assert not other.is_plain
    assert reported_cause("Job 7 was cancelled") is None


def test_an_error_that_came_up_while_another_was_handled_hides_none() -> None:
    with pytest.raises(ValueError, match="closed file") as caught:
        list(Reader(fill_the_disk).read(2))
    text = "".join(traceback.format_exception(caught.value))
    assert "No space left on device" in text
    cause = reported_cause(f"{text}\n\tat org.apache.spark.api\n")
    assert cause is not None
    assert cause[:3] == ("ValueError", "I/O operation on closed file", False)
    assert not cause.is_plain


def test_all_lines_of_a_cause_are_reported() -> None:
    report = 'Traceback (most recent call last):\n  File "x"\nValueError: one:\n  two\n'
    for end in ("", "\n\tat org.apache.spark.api\nDriver stacktrace:\n", "\nJVM stacktrace:\n"):
        assert reported_cause(report + end) == ("ValueError", "one:\n  two", True, "")
