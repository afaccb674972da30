"""The same bytes to Kafka and to Spindle: every answer compared field by field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import wire_cases
from peers.compare import Difference, Pair
from wire_exchange import KEYS, Case, Wire, differences, play

from spindle.protocol.api import APIS

CHAPTERS: dict[str, list[Case]] = wire_cases.CHAPTERS

# Where Spindle differs and why: (pattern of the line, reason).
DELIBERATE: list[tuple[str, str]] = [
    (
        r"^(metadata|create_topics|create_partitions|delete_topics|elect_leaders|list_groups"
        r"|describe_acls|describe_configs|offset_fetch|delete_groups|alter_client_quotas|describe_client_quotas|api_versions|list_config_resources) / .*: order ",
        "Kafka's order is that of a hash",
    ),
    (
        r"^init_producer_id / producer id",
        "Spindle waits for the first block of producer ids; Kafka has the client ask again",
    ),
    (
        r"^find_coordinator / group coordinator",
        "Spindle answers the first search when __consumer_offsets is there; Kafka has it repeated",
    ),
]


@pytest.fixture(scope="module")
def versions(module_pair: Pair) -> dict[str, range]:
    """Versions that both advertise, by the API's name; both hold the topics of SETUP after this."""
    found: list[dict[int, tuple[int, int]]] = []
    for node in (module_pair.reference, module_pair.candidate):
        wire = Wire(node)
        answer = wire.ask("api_versions", 0, {})
        wire.close()
        found.append({one.api_key: (one.min_version, one.max_version) for one in answer.api_keys})
    both = {
        name: range(
            max(found[0][key][0], found[1][key][0]), min(found[0][key][1], found[1][key][1]) + 1
        )
        for name, key in KEYS.items()
        if key in found[0] and key in found[1]
    }
    assert all(len(both[name]) for name in both)
    lines = compare(module_pair, wire_cases.SETUP, both)
    assert lines == [], "\n".join(lines)
    return both


def compare(pair: Pair, cases: list[Case], versions: dict[str, range]) -> list[str]:
    """The differences that no reason explains."""
    expected = play(pair.reference, cases, versions)
    actual = play(pair.candidate, cases, versions)
    found: dict[str, list[str]] = {}
    for name in expected:
        title, _, version = name.rpartition(" ")
        for line in dict.fromkeys(differences(title, expected[name], actual[name])):
            if not any(re.search(pattern, line) for pattern, _ in DELIBERATE):
                found.setdefault(line, []).append(version)
    return [f"{line}  [{' '.join(at)}]" for line, at in found.items()]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_answers_are_equal(pair: Pair, versions: dict[str, range], chapter: str) -> None:
    lines = compare(pair, CHAPTERS[chapter], versions)
    if lines and pair.differences is not None:
        pair.differences.mkdir(parents=True, exist_ok=True)
        (Path(pair.differences) / f"wire-{chapter}.txt").write_text("\n".join(lines) + "\n")
    if lines:
        raise Difference(f"{len(lines)} differences, kafka -> candidate:\n" + "\n".join(lines))


def test_every_advertised_api_is_asked(versions: dict[str, range]) -> None:
    asked = {case.api for cases in CHAPTERS.values() for case in cases}
    assert {APIS[KEYS[name]].name for name in versions} - asked == set()
