"""The page of an audit: a verdict, what was read, and the findings by log directory and kind."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spindle.cli.disks.screen import duration_text
from spindle.cli.pages.bars import span_bar, stacked_bar
from spindle.cli.pages.frame import (
    folded,
    name_text,
    notice,
    page,
    paragraphs,
    section,
    table,
    tag,
    tiles,
    time_text,
)
from spindle.cli.pages.markup import Markup, element, joined
from spindle.common.counted import counted
from spindle.common.sizes import size_text

_MOST_LISTED: Final = 2_000
"""Findings whose place the page lists in all; each kind of a directory gets the same part."""
_FEWEST_LISTED: Final = 5
_MOST_UNFOLDED: Final = 8
_NUMBER: Final = "number"
_ERROR: Final = "error"

Document = Mapping[str, Any]


def audit_page(document: Document) -> str:
    """Return the page of an audit.

    Args:
        document: as `spindle audit --json` prints it.
    """
    directories = document["directories"]
    title = f"audit of {counted(len(directories), 'log directory', 'log directories')}"
    return page("audit", title, [time_text(document["timeMs"])], *_parts(document))


def _parts(document: Document) -> Iterator[Markup]:
    findings = document["findings"]
    severities = Counter(each["severity"] for each in findings)
    yield _verdict(document, severities)
    yield _tiles(document)
    yield _by_directory(document)
    if findings:
        yield _by_kind(findings)
        yield _list(document)


def _verdict(document: Document, severities: Counter[str]) -> Markup:
    unread = [each for each in document["findings"] if each["kind"] == "unreadable"]
    if unread:
        text = f"{counted(len(unread), 'place')} could not be read, so the audit is not complete."
        return notice(_ERROR, _found_text(severities), paragraphs([text]))
    if severities[_ERROR]:
        text = "Records are damaged, missing or in danger, or a broker does not start with files."
        return notice(_ERROR, _found_text(severities), paragraphs([text]))
    if severities:
        text = "No record is in danger: a broker can make these files again, or space is wasted."
        return notice("warning", _found_text(severities), paragraphs([text]))
    return notice("fine", "All in order", paragraphs(["Nothing that was read is damaged."]))


def _found_text(severities: Counter[str]) -> str:
    found = [counted(count, severity) for severity, count in sorted(severities.items())]
    return " and ".join(found)


def _tiles(document: Document) -> Markup:
    seconds, size_bytes = document["seconds"], document["bytes"]
    moved, left_out = document["movedAway"], document["findingsLeftOut"]
    listed = len(document["findings"])
    return tiles(
        (
            "Findings",
            f"{listed + left_out:,}",
            f"{left_out:,} of them only counted" if left_out else "all of them listed",
        ),
        (
            "Replicas",
            f"{document['replicas']:,}",
            f"{moved:,} moved or deleted meanwhile" if moved else "none moved meanwhile",
        ),
        ("Read", size_text(size_bytes), counted(document["batches"], "batch", "batches")),
        (
            "Time",
            f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds),
            f"{size_text(int(size_bytes / max(seconds, 0.001)))}/s",
        ),
    )


def _by_directory(document: Document) -> Markup:
    directories = document["directories"]
    most = max((each["errors"] + each["warnings"] for each in directories), default=0) or 1
    head = (
        ("Directory", ""),
        ("Findings", "wide"),
        ("Errors", _NUMBER),
        ("Warnings", _NUMBER),
        ("Replicas", _NUMBER),
        ("Read", _NUMBER),
        ("State", ""),
    )
    rows = (
        (
            _directory_name(each),
            stacked_bar(((each["errors"] / most, "errors"), (each["warnings"] / most, "warnings"))),
            f"{each['errors']:,}",
            f"{each['warnings']:,}",
            f"{each['replicas']:,}",
            size_text(each["bytes"]),
            tag(each["state"], "plain"),
        )
        for each in sorted(directories, key=lambda each: (-each["errors"], -each["warnings"]))
    )
    return section(
        "Findings by disk",
        table("Findings, replicas and bytes of each log directory", head, rows),
        hint="The log directory with the most errors comes first.",
    )


def _directory_name(each: Document) -> Markup:
    node = "" if each["nodeId"] is None else f" (node {each['nodeId']})"
    return joined(name_text(each["path"]), element("span", node, class_="quiet"))


def _by_kind(findings: Sequence[Document]) -> Markup:
    counts = Counter((each["kind"], each["severity"]) for each in findings)
    most = max(counts.values())
    head = (("Kind", ""), ("Findings", "wide"), ("Number", _NUMBER), ("Severity", ""))
    rows = (
        (
            kind,
            span_bar(0, count / most, f"{severity}s"),
            f"{count:,}",
            tag(severity, severity),
        )
        for (kind, severity), count in counts.most_common()
    )
    return section("Findings by kind", table("Number of findings of each kind", head, rows))


# -- The findings


def _list(document: Document) -> Markup:
    groups = _grouped(document)
    kinds = sum(len(kinds) for kinds in groups.values())
    most = max(_FEWEST_LISTED, _MOST_LISTED // kinds)
    is_short = kinds <= _MOST_UNFOLDED
    parts = [
        folded(
            joined(name_text(directory), " ", _counts(kinds.values())),
            *(
                folded(_kind_text(found), _kind(found, directory, most), is_open=is_short)
                for found in kinds.values()
            ),
            is_open=is_short,
        )
        for directory, kinds in groups.items()
    ]
    return section(
        "Places, causes and repairs",
        *parts,
        hint="spindle audit --repair-plan prints the repairs as a script that deletes nothing.",
    )


def _grouped(document: Document) -> dict[str, dict[str, list[Document]]]:
    """Return the findings by log directory and kind, in their order."""
    groups: dict[str, dict[str, list[Document]]] = {}
    for each in document["findings"]:
        root = each["directory"] or "other places"
        groups.setdefault(root, {}).setdefault(each["kind"], []).append(each)
    return groups


def _counts(kinds: Iterable[Sequence[Document]]) -> Markup:
    severities = Counter(each["severity"] for found in kinds for each in found)
    tags = (tag(counted(count, name), name) for name, count in sorted(severities.items()))
    return joined(*(part for each in tags for part in (each, " ")))


def _kind_text(found: Sequence[Document]) -> Markup:
    first = found[0]
    return joined(tag(first["severity"], first["severity"]), f" {first['kind']}: {len(found):,}")


def _kind(found: Sequence[Document], directory: str, most: int) -> Markup:
    first = found[0]
    rows = (
        (
            name_text(each["path"].removeprefix(f"{directory}/")),
            "" if each["position"] is None else f"{each['position']:,}",
            "" if each["offset"] is None else f"{each['offset']:,}",
            each["evidence"],
        )
        for each in found[:most]
    )
    head = (("Place", ""), ("Byte", _NUMBER), ("Offset", _NUMBER), ("Evidence", ""))
    left = len(found) - most
    more = f"{left:,} more of this kind are not listed here; --json lists them." if left > 0 else ""
    return element(
        "div",
        element(
            "dl",
            element("dt", "Usual cause"),
            element("dd", first["cause"]),
            element("dt", "Repair"),
            element("dd", first["repair"]),
            class_="kinds",
        ),
        table(f"Places with {first['kind']}", head, rows),
        element("p", more, class_="quiet") if more else "",
    )
