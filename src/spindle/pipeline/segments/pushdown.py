"""Turn Spark's pushed filters into bounds on topics, partitions, offsets and timestamps.

Spark evaluates every filter again on the returned rows, so the bounds only have to avoid reads of
rows that cannot match.
"""

import datetime
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from spindle.columnar.decoder import MAX_OFFSET
from spindle.common.ids import TopicPartition

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_COLUMNS: Final = frozenset(("topic", "partition", "offset", "timestamp"))


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Bounds on the wanted rows. None: no bound; timestamps in ms, inclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    min_offset: int = 0
    end_offset: int = MAX_OFFSET
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None

    def wants(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )


def narrow(
    filters: PushedFilters, pushed: Iterable[Any], columns: Collection[str]
) -> PushedFilters:
    """Return `filters` narrowed by PySpark's filter objects; skip filters on other columns.

    Args:
        columns: The columns of records that are read. A filter on `timestamp` is about a field of
            the decoded key or value if the record's own timestamp is not among them.
    """
    for pushed_filter in pushed:
        attribute: tuple[str, ...] = getattr(pushed_filter, "attribute", ())
        if len(attribute) != 1 or attribute[0] not in _COLUMNS.intersection(columns):
            continue
        filters = _narrow(
            filters,
            attribute[0],
            type(pushed_filter).__name__,
            getattr(pushed_filter, "value", None),
        )
    return filters


def _narrow(filters: PushedFilters, column: str, kind: str, value: Any) -> PushedFilters:
    if kind in ("EqualTo", "EqualNullSafe"):
        return _narrow_to(filters, column, (value,))
    if kind == "In":
        return _narrow_to(filters, column, tuple(value))
    if value is None or column in ("topic", "partition"):
        return filters
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return _from(filters, column, value, is_strict=kind == "GreaterThan")
    if kind in ("LessThan", "LessThanOrEqual"):
        return _until(filters, column, value, is_strict=kind == "LessThan")
    return filters


def _narrow_to(filters: PushedFilters, column: str, values: tuple[Any, ...]) -> PushedFilters:
    present = frozenset(value for value in values if value is not None)
    if column == "topic":
        both = present if filters.topics is None else present & filters.topics
        return replace(filters, topics=both)
    if column == "partition":
        both_partitions = present if filters.partitions is None else present & filters.partitions
        return replace(filters, partitions=both_partitions)
    if not present:
        return replace(filters, end_offset=0)
    least, greatest = min(present), max(present)
    narrowed = _from(filters, column, least, is_strict=False)
    return _until(narrowed, column, greatest, is_strict=False)


def _from(filters: PushedFilters, column: str, value: Any, *, is_strict: bool) -> PushedFilters:
    if column == "offset":
        return replace(filters, min_offset=max(filters.min_offset, value + is_strict))
    # A row's timestamp is a whole number of ms, so rounding a bound in us up loses no row.
    least = -(-(_micros(value) + is_strict) // 1000)
    if filters.min_timestamp_ms is not None:
        least = max(least, filters.min_timestamp_ms)
    return replace(filters, min_timestamp_ms=least)


def _until(filters: PushedFilters, column: str, value: Any, *, is_strict: bool) -> PushedFilters:
    if column == "offset":
        return replace(filters, end_offset=min(filters.end_offset, value + 1 - is_strict))
    greatest = (_micros(value) - is_strict) // 1000
    if filters.max_timestamp_ms is not None:
        greatest = min(greatest, filters.max_timestamp_ms)
    return replace(filters, max_timestamp_ms=greatest)


def _micros(value: datetime.datetime) -> int:
    # Spark passes timestamps with a zone; one without is UTC, as the session is.
    moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MICROSECOND
