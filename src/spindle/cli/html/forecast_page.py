"""The page of a forecast: when each directory is full, the soonest first."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from spindle.cli.history.forecast_text import forecast_of, growth_bytes_text, time_to_full_text
from spindle.cli.html.bars import span_bar
from spindle.cli.html.frame import (
    about_cluster,
    cut_table,
    name_text,
    notes,
    page,
    place_text,
    section,
    table,
    tiles,
)
from spindle.cli.html.markup import Markup
from spindle.cli.html.plan_figures import fill_of
from spindle.common.text import size_text, span_text
from spindle.planner.forecast.time_to_full import Filling

_NUMBER: Final = "number"
_MAX_PARTITIONS: Final = 20


def forecast_page(document: Mapping[str, Any]) -> str:
    """Return the page of a forecast.

    Args:
        document: as `spindle history forecast --json` prints it.
    """
    about = about_cluster(document)
    return page("forecast", "When directories are full", about, *_parts(document))


def _parts(document: Mapping[str, Any]) -> Iterator[Markup]:
    directories = sorted(document["directories"], key=_soonest_first)
    filling = list(filter(_is_filling, directories))
    first = span_text(filling[0]["fullInSeconds"]) if filling else "none"
    yield tiles(
        ("Full first", first, _plain_place(filling[0]) if filling else "no directory fills"),
        ("Directories", f"{len(directories):,}", f"{len(filling):,} of them fill"),
    )
    yield notes(document["remarks"])
    yield _directories(directories)
    growing = _growing(document["partitions"])
    if growing:
        yield _partitions(growing)


def _is_filling(each: Mapping[str, Any]) -> bool:
    """Return whether a directory fills within the maximum horizon of the history."""
    return Filling(each["filling"]) is Filling.FILLING


def _soonest_first(each: Mapping[str, Any]) -> tuple[float, int, str]:
    full_s = each["fullInSeconds"]
    return (inf if full_s is None else full_s, each["broker"], each["path"])


def _plain_place(each: Mapping[str, Any]) -> str:
    return f"{each['broker']}:{each['path']}"


def _directories(directories: Sequence[Mapping[str, Any]]) -> Markup:
    known = [
        time_s
        for directory in filter(_is_filling, directories)
        for time_s in (directory["fullInSeconds"], directory["fullInSecondsAtTheLatest"])
        if time_s is not None
    ]
    longest_s = max(known, default=0.0)
    rows = [_directory_row(directory, longest_s) for directory in directories]
    head = (
        ("Directory", "name"),
        ("Fill", _NUMBER),
        ("Capacity", _NUMBER),
        ("Growth", _NUMBER),
        ("From the earliest time to the latest", "wide"),
        ("Full", ""),
    )
    scale = f" The bars of times go from now to {span_text(longest_s)} from now." if known else ""
    return section(
        "Directories, the first full one first",
        cut_table("When directories are full", head, rows),
        hint="At the usual growth; in parentheses at the highest and the lowest growth of an "
        f"interval of 90 %.{scale}",
    )


def _directory_row(each: Mapping[str, Any], longest_s: float) -> tuple[str, ...]:
    fill = fill_of(each, each["usedBytes"])
    is_known = bool(each["capacityBytes"])
    growth = each["growthBytesPerSecond"]
    return (
        place_text(each["broker"], each["path"]),
        f"{100 * fill:.1f} %" if is_known else "-",
        size_text(each["capacityBytes"]) if is_known else "-",
        "-" if growth is None else growth_bytes_text(growth),
        _interval_bar(each, longest_s),
        time_to_full_text(forecast_of(each)),
    )


def _interval_bar(each: Mapping[str, Any], longest_s: float) -> str:
    """Return the bar of the interval in which a directory becomes full, if it fills."""
    if not _is_filling(each) or not longest_s:
        return ""
    earliest = each["fullInSecondsAtTheEarliest"]
    latest = each["fullInSecondsAtTheLatest"]
    begin = each["fullInSeconds"] if earliest is None else earliest
    end = longest_s if latest is None else min(latest, longest_s)
    return span_bar(begin / longest_s, max(0.0, end - begin) / longest_s, "span")


def _growing(partitions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the partitions whose replicas grow most."""
    growing = [
        partition for partition in partitions if (partition["growthBytesPerSecond"] or 0) > 0
    ]
    growing.sort(key=lambda each: (-each["growthBytesPerSecond"], each["topic"], each["partition"]))
    return growing[:_MAX_PARTITIONS]


def _partitions(partitions: Sequence[Mapping[str, Any]]) -> Markup:
    most = partitions[0]["growthBytesPerSecond"]
    rows = [
        (
            name_text(f"{partition['topic']}-{partition['partition']}"),
            span_bar(0, partition["growthBytesPerSecond"] / most, "span"),
            growth_bytes_text(partition["growthBytesPerSecond"]),
        )
        for partition in partitions
    ]
    head = (("Partition", "name"), ("Growth", "wide"), ("Of each replica", _NUMBER))
    return section("Partitions that grow most", table("Growth of partitions", head, rows))
