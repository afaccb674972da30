"""The page of a plan: its numbers, the fill of each directory, and the rounds with their moves."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, Final

from spindle.cli.history.forecast_text import forecast_of, time_to_full_text
from spindle.cli.html.bars import fill_bar, present_bar, span_bar
from spindle.cli.html.frame import (
    about_cluster,
    cut_table,
    folded,
    name_text,
    notes,
    notice,
    page,
    paragraphs,
    place_text,
    quiet,
    section,
    table,
    tag,
    tiles,
)
from spindle.cli.html.markup import Markup, element, joined
from spindle.cli.html.plan_figures import fill_counts, fill_of, largest_flows, peak_bytes
from spindle.common.text import count_noun, duration_text, size_text, span_text

_MS: Final = 1000
_MAX_SHOWN_DIRECTORIES: Final = 40
_MAX_SHOWN_ROUNDS: Final = 24
_MAX_MOVES: Final = 4_000
"""Maximum number of moves that the page lists; if there are more, it lists the largest ones of each
round."""
_MAX_ROUNDS: Final = 1_000
"""Maximum number of rounds that the page lists; further ones are shown in groups."""
_FLOWS: Final = 12
_NUMBER: Final = "number"


def plan_page(document: Mapping[str, Any]) -> str:
    """Return the page of a plan, or of the reason why there is none.

    Args:
        document: as `spindle plan --json` prints it.
    """
    refusal = document.get("refusal")
    parts = _plan(document) if refusal is None else _refused(document, refusal)
    return page("plan", document["goal"], about_cluster(document), *parts)


def _plan(document: Mapping[str, Any]) -> Iterator[Markup]:
    yield _tiles(document)
    yield notes(document["remarks"])
    if not document["rounds"]:
        yield notice("fine", "Nothing has to move", paragraphs([_nothing_text(document)]))
    yield _fills(document)
    if document["horizonMs"] is not None:
        yield _forecast(document)
    if document["rounds"]:
        yield _rounds(document)
        yield _flows(document)
    yield _limits(document["limits"])


def _nothing_text(document: Mapping[str, Any]) -> str:
    if any(directory["isEmptied"] for directory in document["directories"]):
        return "The directories that the plan empties have no replicas."
    return "The fills are as close together as the goal asks for, or as moves can bring them."


def _refused(document: Mapping[str, Any], refusal: Mapping[str, Any]) -> Iterator[Markup]:
    yield notice(
        "error",
        f"There is no plan: {refusal['topic']}-{refusal['partition']} cannot move",
        paragraphs([refusal["reason"][:1].upper() + refusal["reason"][1:] + "."]),
        element("p", element("b", "Limit: "), refusal["limit"]),
        element("p", element("b", "Remedy: "), refusal["remedy"]),
    )
    yield notes(document["remarks"])
    yield _present_fills(document)
    yield _limits(document["limits"])


def _tiles(document: Mapping[str, Any]) -> Markup:
    rounds = document["rounds"]
    moves = sum(len(round_["moves"]) for round_ in rounds)
    moved, bound = document["movedBytes"], document["lowerBoundBytes"]
    above = f"; this plan is {100 * (moved / bound - 1):.1f} % above it" if bound else ""
    if moved < bound:
        above = " for plans that reach the goal; this one does not"
    throttle = size_text(document["limits"]["throttleBytesPerSecond"])
    before, after = 100 * document["spreadBefore"], 100 * document["spreadAfter"]
    return tiles(
        ("Moves", f"{moves:,}", f"of replicas, in {count_noun(len(rounds), 'round')}"),
        ("Moved bytes", size_text(moved), f"lower bound {size_text(bound)}{above}"),
        (
            "Duration, at least",
            duration_text(max(_MS, document["durationMs"]) / _MS) if rounds else "none",
            f"with {throttle}/s for each broker",
        ),
        ("Spread after", f"{after:.1f} points", f"before: {before:.1f} points"),
    )


def _limits(limits: Mapping[str, Any]) -> Markup:
    racks = "are kept" if limits["keepsRacks"] else "may become fewer"
    return section(
        "Limits of this plan",
        element(
            "p",
            f"Highest fill {100 * limits['maxFill']:.0f} % · "
            f"{size_text(limits['throttleBytesPerSecond'])}/s into a broker, out of it, and "
            f"between its directories · {count_noun(limits['parallelMoves'], 'parallel move')} for "
            f"each directory · racks of a partition {racks}",
        ),
    )


# -- Fill of directories


def _fills(document: Mapping[str, Any]) -> Markup:
    directories, peaks = document["directories"], peak_bytes(document)
    limit = document["limits"]["maxFill"]
    rows = [
        _fill_row(directory, peak, limit)
        for directory, peak in zip(directories, peaks, strict=True)
    ]
    legend = _legend(limit)
    if len(rows) <= _MAX_SHOWN_DIRECTORIES:
        parts = [legend, _fill_table(rows)]
    else:
        numbered = groupby(range(len(rows)), lambda number: directories[number]["broker"])
        brokers = []
        for broker, numbers in numbered:
            own = list(numbers)
            summary = _broker_text(broker, [directories[number] for number in own])
            brokers.append(folded(summary, _fill_table([rows[number] for number in own])))
        everything = f"all {len(rows):,} directories by broker"
        parts = [legend, _histogram(directories), folded(everything, *brokers)]
    return section(
        "Fill of each directory",
        *parts,
        hint="Before the first round and after the last one, as a share of its own capacity.",
    )


def _legend(limit: float) -> Markup:
    line = element("svg", element("line", class_="limit", x1=11, x2=11, y2=10), aria_hidden="true")
    names = {
        "before": "before",
        "after": "after",
        "peak": "for the time of copies",
    }
    items = [element("li", _swatch(kind), text) for kind, text in names.items()]
    items.append(element("li", line, f"highest fill allowed: {100 * limit:.0f} %"))
    return element("ul", *items, class_="legend")


def _swatch(kind: str) -> Markup:
    return element("svg", element("rect", class_=kind, width=22, height=10), aria_hidden="true")


def _fill_table(rows: Sequence[Sequence[str]]) -> Markup:
    head = (
        ("Directory", "name"),
        ("Fill", "wide"),
        ("Before", _NUMBER),
        ("After", _NUMBER),
        ("Change", _NUMBER),
        ("Capacity", _NUMBER),
        ("State", ""),
    )
    return table("Fill of directories before and after the plan", head, rows)


def _fill_row(each: Mapping[str, Any], peak: int, limit: float) -> Sequence[str]:
    name = place_text(each["broker"], each["path"])
    change = each["usedBytesAfter"] - each["usedBytesBefore"]
    changed = f"{'+' if change > 0 else '−'}{size_text(abs(change))}" if change else ""
    if not each["capacityBytes"]:
        used = size_text(each["usedBytesBefore"])
        return (name, "", f"{used}", size_text(each["usedBytesAfter"]), changed, "-", _state(each))
    before = fill_of(each, each["usedBytesBefore"])
    after = fill_of(each, each["usedBytesAfter"])
    return (
        name,
        fill_bar(before, after, fill_of(each, peak), limit),
        f"{100 * before:.1f} %",
        f"{100 * after:.1f} %",
        changed,
        size_text(each["capacityBytes"]),
        _state(each),
    )


def _state(each: Mapping[str, Any]) -> Markup:
    words = {
        ("emptied", "fine"): each["isEmptied"],
        ("cordoned", "warning"): each["isCordoned"],
        ("offline", "error"): not each["isOnline"],
    }
    return joined(*(tag(word, kind) for (word, kind), is_so in words.items() if is_so))


def _broker_text(broker: int, directories: Sequence[Mapping[str, Any]]) -> str:
    known = [directory for directory in directories if directory["capacityBytes"]]
    text = f"broker {broker}: {count_noun(len(directories), 'directory', 'directories')}"
    for word, key in (("before", "usedBytesBefore"), ("after", "usedBytesAfter")):
        fills = [100 * fill_of(entry, entry[key]) for entry in known]
        if fills:
            text += f", {word} {min(fills):.1f} to {max(fills):.1f} %"
    return text


def _histogram(directories: Sequence[Mapping[str, Any]]) -> Markup:
    counts = fill_counts(directories)
    most = max((max(before, after) for _, before, after in counts), default=1)
    rows = [
        (
            f"{low} to {low + 5} %",
            joined(span_bar(0, before / most, "before"), span_bar(0, after / most, "span")),
            f"{before:,}",
            f"{after:,}",
        )
        for low, before, after in counts
    ]
    head = (("Fill", ""), ("Directories", "wide"), ("Before", _NUMBER), ("After", _NUMBER))
    return table("Number of directories by fill", head, rows, "histogram")


def _present_fills(document: Mapping[str, Any]) -> Markup:
    """Return the present fills, if there is no plan, the fullest directories first."""
    limit = document["limits"]["maxFill"]
    ranked = sorted(
        document["directories"], key=lambda each: -fill_of(each, each["usedBytesBefore"])
    )
    rows = []
    for directory in ranked:
        fill = fill_of(directory, directory["usedBytesBefore"])
        capacity = size_text(directory["capacityBytes"]) if directory["capacityBytes"] else "-"
        row = (
            place_text(directory["broker"], directory["path"]),
            present_bar(fill, limit) if directory["capacityBytes"] else "",
            f"{100 * fill:.1f} %" if directory["capacityBytes"] else "-",
            size_text(
                max(0, int(limit * directory["capacityBytes"]) - directory["usedBytesBefore"])
            ),
            capacity,
            _state(directory),
        )
        rows.append(row)
    head = (
        ("Directory", "name"),
        ("Fill", "wide"),
        ("Filled", _NUMBER),
        ("Room", _NUMBER),
        ("Capacity", _NUMBER),
        ("State", ""),
    )
    return section(
        "Fill of each directory now",
        cut_table("Fill of directories", head, rows),
        hint=f"The line is the highest fill allowed, {100 * limit:.0f} %; the room ends there.",
    )


def _forecast(document: Mapping[str, Any]) -> Markup:
    horizon = span_text(document["horizonMs"] / _MS)
    rows = [
        (
            place_text(directory["broker"], directory["path"]),
            f"{100 * fill_of(directory, directory['usedBytesAtHorizon']):.1f} %"
            if directory["capacityBytes"]
            else "-",
            time_to_full_text(forecast_of(directory["fullBefore"])),
            time_to_full_text(forecast_of(directory["fullAfter"])),
        )
        for directory in document["directories"]
    ]
    head = (
        ("Directory", "name"),
        (f"After {horizon}", _NUMBER),
        ("Full without the plan", ""),
        ("Full after the plan", ""),
    )
    return section(
        "When directories are full",
        cut_table("When directories are full", head, rows),
        hint=f"The limits hold for {horizon} after the end of the plan, if growth continues as the "
        "history shows it. In parentheses: at the highest and the lowest growth of an interval of "
        "90 %.",
    )


# -- Rounds


def _rounds(document: Mapping[str, Any]) -> Markup:
    rounds = document["rounds"]
    total_ms = max(1, document["durationMs"])
    starts = [0, *accumulate(round_["durationMs"] for round_ in rounds)]
    shown_moves = _MAX_MOVES // len(rounds)
    lines = [
        folded(
            _round_line(f"Round {number}", [round_], starts[number - 1], total_ms),
            _moves(round_["moves"], shown_moves),
        )
        for number, round_ in enumerate(rounds[:_MAX_ROUNDS], start=1)
    ]
    size = -(-len(rounds) // _MAX_SHOWN_ROUNDS)
    if size > 1:
        lines = [
            folded(
                _round_line(
                    f"Rounds {first + 1} to {min(first + size, len(rounds))}",
                    rounds[first : first + size],
                    starts[first],
                    total_ms,
                ),
                *lines[first : first + size],
            )
            for first in range(0, len(rounds), size)
        ]
    left = len(rounds) - _MAX_ROUNDS
    more = f"{left:,} more rounds are only in the sums; --json lists all." if left > 0 else ""
    return section(
        "Rounds over time",
        *lines,
        quiet(more),
        hint="A round begins when all copies of the one before have ended. Its time is what the "
        "throttle needs for its busiest broker. The rate is the sum over all brokers, so it may be "
        f"higher than the {size_text(document['limits']['throttleBytesPerSecond'])}/s that the "
        "throttle allows each of them.",
    )


def _round_line(
    name: str, rounds: Sequence[Mapping[str, Any]], start_ms: int, total_ms: int
) -> Markup:
    moves = sum(len(entry["moves"]) for entry in rounds)
    size_bytes = sum(move["sizeBytes"] for entry in rounds for move in entry["moves"])
    duration_ms = sum(entry["durationMs"] for entry in rounds)
    rate = f"{size_text(size_bytes * _MS // duration_ms)}/s in all" if duration_ms else ""
    return element(
        "span",
        element("span", name),
        span_bar(start_ms / total_ms, duration_ms / total_ms, "span"),
        *(
            element("span", text)
            for text in (
                count_noun(moves, "move"),
                size_text(size_bytes),
                duration_text(duration_ms / _MS),
                rate,
            )
        ),
        class_="round",
    )


def _moves(moves: Sequence[Mapping[str, Any]], most: int) -> Markup:
    largest = sorted(moves, key=lambda move: -move["sizeBytes"])[:most]
    rows = (
        (
            name_text(f"{move['topic']}-{move['partition']}"),
            place_text(move["fromBroker"], move["fromPath"]),
            place_text(move["toBroker"], move["toPath"]),
            size_text(move["sizeBytes"]),
        )
        for move in largest
    )
    head = (("Partition", ""), ("From", ""), ("To", ""), ("Size", _NUMBER))
    listed = table("Moves of the round, the largest first", head, rows) if largest else ""
    left = len(moves) - len(largest)
    more = f"{count_noun(left, 'smaller move')} not listed here; --json lists all." if left else ""
    return joined(listed, quiet(more))


def _flows(document: Mapping[str, Any]) -> Markup:
    flows = largest_flows(document["rounds"])
    most = max(size for _, _, size in flows) or 1
    rows = [
        (
            name,
            span_bar(0, size / most, "span"),
            f"{count:,}",
            size_text(size),
        )
        for name, count, size in flows[:_FLOWS]
    ]
    head = (("Brokers", ""), ("Bytes", "wide"), ("Moves", _NUMBER), ("Size", _NUMBER))
    left = len(flows) - len(rows)
    more = quiet(f"{left} smaller flows are not shown." if left else "")
    return section("Where the bytes go", table("Bytes between brokers", head, rows), more)
