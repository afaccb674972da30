"""The page of an audit: a verdict, what was read, and the findings by log directory and kind."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spindle.cli.html.bars import span_bar, stacked_bar
from spindle.cli.html.frame import (
    cut_table,
    folded,
    name_text,
    notice,
    page,
    paragraphs,
    quiet,
    section,
    table,
    tag,
    tiles,
    time_text,
)
from spindle.cli.html.markup import Markup, element, joined
from spindle.common.text import count_noun, duration_text, size_text

_MAX_LISTED: Final = 2_000
"""Maximum number of findings that the page lists; each kind of a directory gets an equal share."""
_MIN_LISTED: Final = 5
_MAX_UNFOLDED: Final = 8
_NUMBER: Final = "number"
_STATES: Final = {"offline": "error", "does not answer": "error"}
_ERROR: Final = "error"
_UNSEEN: Final = ("unreadable", "broker-silent")
"""Kinds of findings that leave an audit incomplete."""

Document = Mapping[str, Any]


def audit_page(document: Document) -> str:
    """Return the page of an audit.

    Args:
        document: as `spindle audit --json` prints it.
    """
    count = len(document["directories"])
    title = f"audit of {count_noun(count, 'log directory', 'log directories')}"
    if document["brokers"]:
        cluster = f"a cluster of {count_noun(len(document['brokers']), 'broker')}"
        title = f"audit of {cluster}" if not count else f"{title} and {cluster}"
    return page("audit", title, [time_text(document["timeMs"])], *_parts(document))


def _parts(document: Document) -> Iterator[Markup]:
    findings = document["findings"]
    severities = Counter(finding["severity"] for finding in findings)
    yield _verdict(document, severities)
    yield _tiles(document)
    if document["directories"]:
        yield _by_directory(document)
    if document["brokers"]:
        yield _by_broker(document["brokers"])
    if findings:
        yield _by_kind(findings)
        yield _list(document)


def _verdict(document: Document, severities: Counter[str]) -> Markup:
    unseen = [finding for finding in document["findings"] if finding["kind"] in _UNSEEN]
    if unseen:
        places = count_noun(len(unseen), "place")
        text = f"{places} could not be read or did not answer, so the audit is not complete."
        return notice(_ERROR, _found_text(severities), paragraphs([text]))
    if severities[_ERROR]:
        text = "Records are damaged, missing or in danger, or a broker cannot start on these files."
        return notice(_ERROR, _found_text(severities), paragraphs([text]))
    if severities:
        text = "No record is in danger: a broker can make these files again, or space is wasted."
        return notice("warning", _found_text(severities), paragraphs([text]))
    return notice("fine", "All in order", paragraphs(["Nothing that was read is damaged."]))


def _found_text(severities: Counter[str]) -> str:
    counts = [count_noun(count, severity) for severity, count in sorted(severities.items())]
    return " and ".join(counts)


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
            "Replicas read",
            f"{document['replicas']:,}",
            f"{moved:,} moved or deleted meanwhile" if moved else "none moved meanwhile",
        ),
        ("Bytes read", size_text(size_bytes), count_noun(document["batches"], "batch", "batches")),
        (
            "Time",
            f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds),
            f"{size_text(int(size_bytes / max(seconds, 0.001)))}/s",
        ),
    )


def _by_directory(document: Document) -> Markup:
    rows = [(_directory_name(directory), directory) for directory in document["directories"]]
    return section(
        "Findings by disk",
        _disk_table("Findings, replicas and bytes of each log directory", rows),
        hint="The log directory with the most errors comes first.",
    )


def _by_broker(brokers: Sequence[Document]) -> Markup:
    rows: list[tuple[Markup, Document]] = []
    for broker in brokers:
        own = element("b", f"broker {broker['id']}")
        if broker["error"] is not None or broker["errors"] + broker["warnings"]:
            silent = "" if broker["error"] is None else "does not answer"
            rows.append((own, {**broker, "replicas": 0, "bytes": 0, "state": silent}))
        rows += [
            (joined(own, ":", name_text(directory["path"])), directory)
            for directory in broker["directories"]
        ]
    return section(
        "Findings by disk, as brokers report them",
        _disk_table("Findings, replicas and bytes of each directory of a broker", rows),
        hint="The brokers were asked for these directories and compared with the metadata.",
    )


def _disk_table(caption: str, rows: Sequence[tuple[Markup, Document]]) -> Markup:
    most = max((entry["errors"] + entry["warnings"] for _, entry in rows), default=0) or 1
    head = (
        ("Directory", ""),
        ("Findings", "wide"),
        ("Errors", _NUMBER),
        ("Warnings", _NUMBER),
        ("Replicas", _NUMBER),
        ("Size", _NUMBER),
        ("State", ""),
    )
    ranked = sorted(rows, key=lambda row: (-row[1]["errors"], -row[1]["warnings"]))
    cells = [
        (
            name,
            stacked_bar(
                ((entry["errors"] / most, "errors"), (entry["warnings"] / most, "warnings"))
            ),
            f"{entry['errors']:,}",
            f"{entry['warnings']:,}",
            f"{entry['replicas']:,}",
            size_text(entry["bytes"]),
            tag(entry["state"], _STATES.get(entry["state"], "plain")) if entry["state"] else "",
        )
        for name, entry in ranked
    ]
    return cut_table(caption, head, cells)


def _directory_name(each: Document) -> Markup:
    node = "" if each["nodeId"] is None else f" (node {each['nodeId']})"
    return joined(name_text(each["path"]), element("span", node, class_="quiet"))


def _by_kind(findings: Sequence[Document]) -> Markup:
    counts = Counter((finding["kind"], finding["severity"]) for finding in findings)
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
    most = max(_MIN_LISTED, _MAX_LISTED // kinds)
    is_short = kinds <= _MAX_UNFOLDED
    parts = [
        folded(
            joined(name_text(directory), " ", _counts(kinds.values())),
            *(
                folded(_kind_text(kind), _kind(kind, directory, most), is_open=is_short)
                for kind in kinds.values()
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
    """Return the findings by log directory, or broker, and kind, in their order."""
    groups: dict[str, dict[str, list[Document]]] = {}
    for finding in document["findings"]:
        root = finding["directory"] or "the cluster"
        groups.setdefault(root, {}).setdefault(finding["kind"], []).append(finding)
    return groups


def _counts(kinds: Iterable[Sequence[Document]]) -> Markup:
    severities = Counter(entry["severity"] for kind in kinds for entry in kind)
    tags = (tag(count_noun(count, name), name) for name, count in sorted(severities.items()))
    return joined(*(part for markup in tags for part in (markup, " ")))


def _kind_text(found: Sequence[Document]) -> Markup:
    first = found[0]
    return joined(tag(first["severity"], first["severity"]), f" {first['kind']}: {len(found):,}")


def _kind(found: Sequence[Document], directory: str, most: int) -> Markup:
    first = found[0]
    rows = (
        (
            name_text(entry["path"].removeprefix(f"{directory}/")),
            "" if entry["position"] is None else f"{entry['position']:,}",
            "" if entry["offset"] is None else f"{entry['offset']:,}",
            entry["evidence"],
        )
        for entry in found[:most]
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
        quiet(more),
    )
