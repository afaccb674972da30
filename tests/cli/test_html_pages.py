"""The pages of plans and audits are whole in one file, safe with hostile names, and small."""

import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import pytest

from spindle.cli.history.forecast_text import forecast_document
from spindle.cli.html.audit_page import audit_page
from spindle.cli.html.forecast_page import forecast_page
from spindle.cli.html.html_option import HTML, write_page
from spindle.cli.html.plan_figures import fill_counts, peak_bytes
from spindle.cli.html.plan_page import plan_page
from spindle.cli.plan.documents import head_document, plan_document, refusal_document
from spindle.cli.terminal import BAD, Line, blocks_text, show
from spindle.common.ids import TopicPartition
from spindle.common.text import printable
from spindle.operations.snapshot import ClusterSnapshot
from spindle.planner.forecast.time_to_full import Filling, TimeToFull
from spindle.planner.goals import drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import Infeasible

GIB = 2**30
LIMITS = PlanLimits()
HOSTILE = "</title><script>alert(1)</script><img src=x onerror='alert(2)'>\"&\x1b[31m\u202e\udcff"
SHOWN = printable(HOSTILE)


class Parsed(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def model(name: str = "t", path: str = "/a", capacity_gib: int = 100) -> ClusterModel:
    return ClusterModel(
        [BrokerModel(1), BrokerModel(2)],
        [
            DirectoryModel(1, path, capacity_gib * GIB, 40 * GIB),
            DirectoryModel(1, "/b", capacity_gib * GIB, 10 * GIB),
            DirectoryModel(2, "/a", capacity_gib * GIB, 30 * GIB, is_cordoned=True),
        ],
        [PartitionModel(TopicPartition(name, n), (0,), (20 * GIB,)) for n in range(2)],
    )


def drained(cluster: ClusterModel, *remarks: str, goal: str = "empty 1:/a") -> dict[str, Any]:
    """Return the document of the plan that empties the first directory, or of its refusal."""
    head = head_document(
        goal, LIMITS, ClusterSnapshot(cluster, list(remarks), "id"), 1_790_000_000_000
    )
    try:
        return plan_document(head, drain(cluster, [0], LIMITS))
    except Infeasible as error:
        return refusal_document(head, cluster, error)


def test_the_rate_of_a_round_is_named_as_the_sum_over_all_brokers() -> None:
    """It may be above the throttle, which counts for each broker."""
    text = Parsed(plan_page(drained(model()))).text
    assert "50.0 MiB/s in all" in text
    assert "higher than the 50.0 MiB/s that the throttle allows each of them" in text


def finding(**fields: Any) -> dict[str, Any]:
    plain = {
        "kind": "batch-checksum",
        "severity": "error",
        "path": "/a/t-0/0.log",
        "directory": "/a",
        "position": 381,
        "offset": None,
        "replica": "/a/t-0",
        "evidence": "its bytes give 5",
        "cause": "the disk changed bytes",
        "repair": "copy the replica again",
    }
    return plain | fields


def audited(*findings: dict[str, Any], path: str = "/a") -> dict[str, Any]:
    directory = {
        "path": path,
        "state": "in use",
        "nodeId": 1,
        "replicas": 3,
        "bytes": GIB,
        "errors": sum(finding["severity"] == "error" for finding in findings),
        "warnings": sum(finding["severity"] == "warning" for finding in findings),
    }
    return {
        "timeMs": 1_790_000_000_000,
        "directories": [directory],
        "brokers": [],
        "replicas": 3,
        "movedAway": 0,
        "batches": 1000,
        "bytes": GIB,
        "seconds": 2.0,
        "findingsLeftOut": 0,
        "findings": list(findings),
    }


def test_a_plan_shows_fill_bound_rounds_and_moves() -> None:
    text = Parsed(plan_page(drained(model(), "brokers 1 and 2 share a disk"))).text
    for part in (
        "Empty 1:/a",
        "lower bound 40.0 GiB; this plan is 0.0 % above it",
        "brokers 1 and 2 share a disk",
        "highest fill allowed: 95 %",
        "−40.0 GiB",
        "emptied",
        "cordoned",
        "Round 1",
        "13:39",
        "t-1",
    ):
        assert part in text


def test_a_refusal_shows_limit_remedy_and_the_fill_before() -> None:
    document = drained(model(capacity_gib=44))
    assert document["refusal"]["limit"] == "capacity"
    text = Parsed(plan_page(document)).text
    assert "There is no plan: t-1 cannot move" in text or "t-0 cannot move" in text
    assert f"Remedy: {document['refusal']['remedy']}" in text
    assert "90.9 %" in text


@pytest.mark.parametrize("kind", ["unreadable", "broker-silent"])
def test_an_audit_that_did_not_see_everything_says_so(kind: str) -> None:
    text = Parsed(audit_page(audited(finding(kind=kind)))).text
    assert "1 place could not be read or did not answer, so the audit is not complete." in text


def test_an_audit_shows_a_verdict_places_causes_and_repairs() -> None:
    text = Parsed(audit_page(audited(finding(), finding(severity="warning", kind="x")))).text
    for part in (
        "1 error and 1 warning",
        "t-0/0.log",
        "381",
        "its bytes give 5",
        "copy the replica",
    ):
        assert part in text
    assert "All in order" in Parsed(audit_page(audited())).text


def test_the_audit_of_a_cluster_shows_what_brokers_report() -> None:
    quiet = {"errors": 0, "warnings": 0}
    place = {"path": "/d", "state": "offline", "replicas": 7, "bytes": GIB, **quiet, "errors": 1}
    brokers = [
        {"id": 1, "error": None, "directories": [place], **quiet},
        {"id": 2, "error": "no answer", "directories": [], **quiet, "errors": 1},
    ]
    reported = finding(path="broker 1:/d/t-0", directory="broker 1:/d")
    document = audited(reported) | {"brokers": brokers, "directories": []}
    text = Parsed(audit_page(document)).text
    for part in ("Audit of a cluster of 2 brokers", "broker 1:/d", "does not answer", "offline"):
        assert part in text


def forecast(name: str, full: TimeToFull | None = None) -> dict[str, Any]:
    """Return the document of a directory that does not fill, and of one that does if given."""
    still = TimeToFull(Filling.UNKNOWN, name)
    directories = [
        {
            "broker": number,
            "path": f"{name}/{number}",
            "capacityBytes": 100 * GIB,
            "usedBytes": 40 * GIB,
            **forecast_document(forecast),
            "growthBytesPerSecond": 1000.0,
        }
        for number, forecast in enumerate([still] if full is None else [still, full])
    ]
    rate = {"growthBytesPerSecond": 1000.0, "producedBytesPerSecond": None}
    return {
        "timeMs": 0,
        "clusterId": name,
        "remarks": [name],
        "directories": directories,
        "partitions": [{"topic": name, "partition": 0, **rate}],
    }


def test_a_forecast_shows_the_first_full_directory_first() -> None:
    full = TimeToFull(
        Filling.FILLING,
        max_horizon_s=1e6,
        expected_s=9 * 86400.0,
        earliest_s=6 * 86400.0,
        latest_s=12 * 86400.0,
    )
    text = Parsed(forecast_page(forecast("/d", full))).text
    assert "9.0 d1:/d/1" in text
    assert text.index("in 9.0 d (6.0 d to 12.0 d)") < text.index("unknown: /d")
    assert "/d-0+82.4 MiB/d" in text


def hostile_pages() -> dict[str, str]:
    refused = drained(model(capacity_gib=44))
    refused["refusal"] |= dict.fromkeys(("topic", "reason", "remedy", "limit"), HOSTILE)
    fields = ("path", "kind", "evidence", "cause", "repair", "directory", "severity")
    hostile_findings = [finding(**{name: HOSTILE}) for name in fields]
    return {
        "plan": plan_page(drained(model(HOSTILE, HOSTILE), HOSTILE, goal=HOSTILE)),
        "refusal": plan_page(refused),
        "audit": audit_page(audited(*hostile_findings, path=HOSTILE)),
        "forecast": forecast_page(forecast(HOSTILE)),
    }


def test_hostile_names_stay_text() -> None:
    plain = Parsed(plan_page(drained(model()))), Parsed(audit_page(audited(finding())))
    tags = plain[0].tags | plain[1].tags | {"p"}
    attributes = plain[0].attributes | plain[1].attributes
    for name, page in hostile_pages().items():
        parsed = Parsed(page)
        assert parsed.tags <= tags, name
        assert parsed.attributes <= attributes, name
        assert SHOWN in parsed.text, name
        assert not set("\x1b\u202e\udcff") & set(page), name
        page.encode()


def test_a_page_needs_nothing_else_and_allows_no_script() -> None:
    for page in hostile_pages().values():
        parsed = Parsed(page)
        assert not parsed.tags & {"script", "link", "img", "iframe", "object", "base", "a", "form"}
        assert not parsed.attributes & {"href", "src", "style", "srcset", "action"}
        assert not re.search(r"url\(|@import|https?:", page)
        assert "default-src &#x27;none&#x27;; style-src &#x27;sha256-" in page


def large_document() -> dict[str, Any]:
    """Return 1,000 directories and 30,000 moves in 300 rounds."""
    directories = [
        {
            "broker": number // 10,
            "path": f"/mnt/disk{number % 10}/kafka-logs",
            "capacityBytes": 8192 * GIB,
            "usedBytesBefore": (number % 97) * 80 * GIB,
            "usedBytesAfter": 3900 * GIB,
            "isEmptied": False,
            "isCordoned": False,
            "isOnline": True,
        }
        for number in range(1000)
    ]
    moves = [
        {
            "topic": f"payments.by-customer.{number % 1000}",
            "partition": number // 1000,
            "fromBroker": number % 100,
            "fromPath": "/mnt/disk0/kafka-logs",
            "toBroker": (number + 1) % 100,
            "toPath": "/mnt/disk1/kafka-logs",
            "sizeBytes": GIB + number,
        }
        for number in range(30_000)
    ]
    rounds = [
        {"durationMs": 60_000, "moves": moves[first : first + 100]}
        for first in range(0, len(moves), 100)
    ]
    return drained(model()) | {
        "directories": directories,
        "rounds": rounds,
        "durationMs": 18_000_000,
    }


def test_pages_of_large_clusters_stay_small_and_say_that_they_are_cut() -> None:
    page = plan_page(large_document())
    assert len(page) < 3_000_000
    assert "broker 99: 10 directories, before " in page
    assert "Rounds 1 to 13" in page
    assert "87 smaller moves not listed here" in page
    document = large_document()
    document["rounds"] = [
        {"durationMs": 6000, "moves": [move]} for move in document["rounds"][0]["moves"] * 60
    ]
    page = plan_page(document)
    assert len(page) < 4_000_000
    assert "5,000 more rounds are only in the sums" in page
    many_findings = [finding(kind=f"k{number % 40}", offset=number) for number in range(20_000)]
    page = audit_page(audited(*many_findings))
    assert len(page) < 1_500_000
    assert "450 more of this kind are not listed here" in page


def test_a_peak_counts_copies_before_their_sources_are_freed() -> None:
    document = drained(model())
    assert peak_bytes(document) == [40 * GIB, 50 * GIB, 30 * GIB]
    assert fill_counts(document["directories"]) == [
        (0, 0, 1),
        (5, 0, 0),
        (10, 1, 0),
        *((low, 0, 0) for low in (15, 20, 25)),
        (30, 1, 1),
        (35, 0, 0),
        (40, 1, 0),
        (45, 0, 0),
        (50, 0, 1),
    ]


@click.command()
@HTML
def draw(html: Path) -> None:
    write_page(html, "<!doctype html>\n")


def test_a_page_replaces_a_page_and_nothing_else(tmp_path: Path) -> None:
    page, other = tmp_path / "new.html", tmp_path / "00000000000000000000.log"
    other.write_bytes(b"records")
    for _ in range(2):
        draw.main(["--html", str(page)], standalone_mode=False)
    assert page.read_text() == "<!doctype html>\n"
    for path, reason in (
        (other, "exists and is not an HTML page"),
        (tmp_path, "exists and is not an HTML page"),
        (tmp_path / "absent" / "x.html", "is not a folder to write to"),
    ):
        with pytest.raises(click.BadParameter, match=reason):
            draw.main(["--html", str(path)], standalone_mode=False)
    assert sorted(tmp_path.iterdir()) == [other, page]
    assert other.read_bytes() == b"records"


def shown(monkeypatch: pytest.MonkeyPatch, encoding: str, **variables: str) -> str:
    """Return what a terminal of an encoding gets for a bar and for a red line."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding, write_through=True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        show([Line(f"{blocks_text(0.25, 4, 0.25)} é"), Line("over\x1b[2J", BAD)])
    return raw.getvalue().decode(encoding)


def test_colours_are_for_terminals_and_blocks_for_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, "utf-8") == "░█░░ é\nover\\x1b[2J\n"
    assert shown(monkeypatch, "ascii") == ".#.. \\xe9\nover\\x1b[2J\n"
    coloured = shown(monkeypatch, "utf-8", FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[31mover" in coloured
    assert "\x1b[36m█" in coloured
    plain = shown(monkeypatch, "utf-8", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert "over" in plain
