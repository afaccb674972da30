"""The console over a snapshot without a cluster: pages, hostile names, security."""

import hashlib
import json
from dataclasses import replace
from importlib.resources import files
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from spindle.cli.disks.broker_poll import BrokerReport
from spindle.cli.status.cluster_status import Status
from spindle.client.admin.cluster import ClusterDescription, ClusterNode
from spindle.client.blocking.settings import client_settings
from spindle.client.cluster_metadata import ClusterView, PartitionView, TopicView
from spindle.client.disks import BrokerDisks, CordonView, DiskView, MoveView
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.console.app import Console, ConsoleSettings
from spindle.console.cluster_poll import SnapshotSource
from spindle.console.page import Page
from spindle.console.page_table import PAGES
from spindle.console.sessions import IDLE_S, ConsoleSessions
from spindle.console.snapshot import ConsoleSnapshot
from spindle.planner.forecast.time_to_full import Filling, TimeToFull, unknown

HOSTILE = "<script>alert(1)</script>\u202e\x00'\"{{7*7}}"
ASKING = ("groups",)
"""Pages that show nothing without a cluster."""
DISK = "/disk?broker=1&path=%2Fdisk1"


def disk(path: str, failure: str | None = None, cordon: str | None = None) -> DiskView:
    cordons = (CordonView("configuration", cordon, "anna"),) if cordon is not None else ()
    return DiskView(path, None, failure, None, 1000, 400, 10, 1, 0, 1, cordons, None)


def snapshot(name: str = "orders", *, failure: str | None = None) -> ConsoleSnapshot:
    node = ClusterNode(1, "127.0.0.1", 9, None, False)
    where = TopicPartition(name, 0)
    disks = (disk("/disk1", cordon=HOSTILE), disk("/disk2", failure))
    moves = (MoveView(where, "/disk1", "/disk2", "copying", 10, 5, 0),)
    status = Status(
        ClusterDescription("cluster", 1, (node,)),
        "unknown",
        ClusterView(
            cluster_id="cluster",
            controller_id=1,
            brokers={},
            topics={
                name: TopicView(name, ZERO_UUID, False, {0: PartitionView(0, 1, 0, (1,), (1,), ())})
            },
            refused={},
        ),
        (BrokerReport(node, True, BrokerDisks(0, 1, None, disks, moves)),),
    )
    replica = ReplicaOnDisk(10, 0, False)
    view = LogDirView("/disk1", ErrorCode.NONE, 1000, 400, False, {where: replica})
    return ConsoleSnapshot(1, status, {1: [view]}, {}, {}, {})


def browser(
    shown: ConsoleSnapshot | None = None,
    access: ConsoleSessions | None = None,
    *,
    allows_changes: bool = False,
) -> TestClient:
    source = SnapshotSource()
    source.publish(shown or snapshot())
    client = client_settings({"bootstrap.servers": "127.0.0.1:9", "default.api.timeout.ms": "200"})
    settings = ConsoleSettings("127.0.0.1:9", frozenset({"localhost"}), allows_changes)
    app = Console(source, client, access or ConsoleSessions({}, "anna"), settings).app()
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=True)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ASKING and "{" not in page.path]
)
def test_each_page_is_whole_and_its_part_is_not(page: Page) -> None:
    address = DISK if page.path == "/disk" else page.path
    with browser() as client:
        whole = client.get(address)
        part = client.get(address, headers={"HX-Request": "true"})
    assert whole.status_code == part.status_code == 200
    assert "<html" in whole.text
    assert "<html" not in part.text
    assert "<h1>" in part.text


@pytest.mark.parametrize("address", ["/", DISK, "/topics", "/topics/{}"])
def test_a_hostile_name_never_becomes_markup(address: str) -> None:
    with browser(snapshot(HOSTILE, failure=HOSTILE)) as client:
        text = client.get(address.format(quote(HOSTILE, safe=""))).text
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "49" not in text.replace("249", "")


def test_directories_of_a_silent_broker_are_not_called_online() -> None:
    shown = snapshot()
    silent = tuple(replace(report, disks=None, error="gone") for report in shown.status.reports)
    with browser(shown) as client:
        assert "all online" in client.get("/").text
    with browser(replace(shown, status=shown.status._replace(reports=silent))) as client:
        page = client.get("/").text
    assert "all online" not in page
    assert "unknown on 1 broker" in page


def test_a_forecast_that_reads_the_same_wakes_no_page() -> None:
    source = SnapshotSource()
    shown = snapshot()
    for reason in ("too few samples (1 of 6)", "too few samples (2 of 6)"):
        source.publish(replace(shown, forecasts={(1, "/disk1"): unknown(reason)}))
    assert source.number == 1
    growing = TimeToFull(Filling.FILLING, expected_s=3600.0)
    source.publish(replace(shown, forecasts={(1, "/disk1"): growing}))
    assert source.number == 2


def test_a_page_that_asks_a_cluster_that_is_away_says_so() -> None:
    with browser() as client:
        response = client.get("/groups")
    assert response.status_code == 502
    assert 'role="alert"' in response.text


def test_pages_forbid_inline_code_and_other_hosts() -> None:
    with browser() as client:
        response = client.get("/")
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert " style=" not in response.text
    assert "http://" not in response.text.replace("http://www.w3.org", "")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[", ""])
def test_a_host_name_of_another_site_is_refused(host: str) -> None:
    with browser() as client:
        assert client.get("/", headers={"Host": host}).status_code == 421


def test_an_action_needs_the_token_of_the_session_and_the_name() -> None:
    with browser(allows_changes=True) as client:
        form = {"broker": "1", "path": "/disk1", "confirmation": "1:/disk1"}
        assert client.post("/actions/uncordon", data=form).status_code == 403
        page = client.get("/actions/uncordon?broker=1&path=%2Fdisk1").text
        assert "spindle disks uncordon 1 /disk1 -b 127.0.0.1:9" in page
        token = page.split('name="csrf" value="')[1].split('"')[0]
        wrong = client.post(
            "/actions/uncordon", data={**form, "csrf": token, "confirmation": "1:/disk2"}
        )
        assert wrong.status_code == 400
        origin = {"Origin": "http://evil.example"}
        foreign = client.post("/actions/uncordon", data={**form, "csrf": token}, headers=origin)
        assert foreign.status_code == 403
        # The cluster does not exist, so the action fails, and is logged with its user.
        assert client.post("/actions/uncordon", data={**form, "csrf": token}).status_code == 502
        assert "anna" in client.get("/log").text


def test_a_console_without_allow_changes_runs_no_action() -> None:
    with browser() as client:
        page = client.get("/actions/cordon?broker=1&path=%2Fdisk1").text
        token = page.split('name="csrf" value="')[1].split('"')[0]
        form = {"broker": "1", "path": "/disk1", "confirmation": "1:/disk1", "csrf": token}
        assert client.post("/actions/cordon", data=form).status_code == 403


def test_a_login_is_needed_and_a_session_ends() -> None:
    now_s = [0.0]
    access = ConsoleSessions({"anna": "correct horse"}, "local", lambda: now_s[0])
    with browser(access=access) as client:
        assert client.get("/", follow_redirects=False).headers["location"] == "/login"
        page = client.get("/login").text
        token = page.split('name="csrf" value="')[1].split('"')[0]
        form = {"csrf": token, "name": "anna", "password": "wrong"}
        assert client.post("/login", data=form).status_code == 401
        assert client.post("/login", data={**form, "password": "correct horse"}).status_code == 200
        assert "Brokers and directories" in client.get("/").text
        now_s[0] += IDLE_S + 1
        assert client.get("/", follow_redirects=False).status_code == 303


def test_the_files_of_others_are_those_of_their_releases() -> None:
    vendor = files("spindle.console") / "static" / "vendor"
    pins = json.loads((vendor / "pins.json").read_text())
    digests = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in vendor.iterdir()
        if file.name != "pins.json"
    }
    assert digests == {name: pin["sha256"] for name, pin in pins.items()}
