"""The console as a process, over a cluster of one node."""

import json
import re
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from certificates import certified
from confluent_kafka import Producer
from console_process import RunningConsole, running_console
from waiting import wait_for, wait_until

from spindle.cli.main import run
from spindle.client.admin.configs import describe
from spindle.client.admin.groups import commit_offsets
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType
from spindle.testing import Cluster

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(directories=2) as one:
        one.create_topic("orders", partitions=3)
        yield one


@pytest.fixture(scope="module")
def console(cluster: Cluster) -> Iterator[RunningConsole]:
    with running_console(cluster.bootstrap_servers, "--allow-changes") as one:
        yield one


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.address, timeout=30, follow_redirects=True) as client:
        wait_until(lambda: client.get("/").status_code == 200, "the first snapshot")
        yield client


def directory(cluster: Cluster) -> str:
    return str(cluster.broker(1).log_dirs[0])


def disk_query(cluster: Cluster) -> str:
    return f"broker=1&path={quote(directory(cluster), safe='')}"


def test_each_page_shows_the_cluster(cluster: Cluster, browser: httpx.Client) -> None:
    assert "Broker 1" in browser.get("/").text
    wait_until(lambda: "orders" in browser.get("/topics").text, "the topic in the next snapshot")
    topic = browser.get("/topics/orders").text
    assert directory(cluster) in topic
    assert "retention.ms" in topic
    assert "orders-" in browser.get(f"/disk?{disk_query(cluster)}").text
    assert browser.get("/topics/none").status_code == 404


def test_an_action_cordons_a_directory_and_wakes_the_open_page(
    cluster: Cluster, browser: httpx.Client
) -> None:
    address = f"/actions/cordon?{disk_query(cluster)}"
    token = re.findall(r'name="csrf" value="(\w+)"', browser.get(address).text)[0]
    number = re.findall(r'data-number="(\d+)"', browser.get("/").text)[0]
    path = directory(cluster)
    form = {
        "csrf": token,
        "broker": "1",
        "path": path,
        "reason": "it clicks",
        "confirmation": f"1:{path}",
    }
    with browser.stream("GET", f"/events?after={number}") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        assert browser.post("/actions/cordon", data=form).url.path == "/log"
        event = next(line for line in lines if line.startswith("data: "))
    assert json.loads(event.removeprefix("data: "))["number"] > int(number)
    settings = client_settings({"bootstrap.servers": cluster.bootstrap_servers})
    with WireClient(settings) as client:
        configs = {c.name: c.value for c in describe(client, ConfigResourceType.BROKER, "1")}
    assert configs["cordoned.log.dirs"] == path
    wait_until(lambda: "it clicks" in browser.get("/").text, "the cordon with its reason")
    assert f"spindle disks cordon 1 {path}" in browser.get("/log").text


def test_groups_show_their_lag_and_hostile_names(cluster: Cluster, browser: httpx.Client) -> None:
    name = "<b>billing</b>/{{7*7}}"
    connection = ("-b", cluster.bootstrap_servers)
    assert run(["topic", "create", "paid", *connection]) == 0
    settings = client_settings({"bootstrap.servers": cluster.bootstrap_servers})
    with WireClient(settings) as client:
        commit_offsets(client, name, {TopicPartition("paid", 0): 0})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(5):
        producer.produce("paid", b"record")
    assert producer.flush(30) == 0
    listed = browser.get("/groups?q=billing").text
    assert "<b>billing" not in listed
    address = re.findall(r'href="(/groups/[^"]+)"', listed)[0]
    page = browser.get(address).text
    assert "<b>billing" not in page
    assert re.search(r"Lag</dt><dd class=.figure.>5<", page)
    assert "No member is connected." in page
    assert browser.get("/groups/none").status_code == 404


def test_logins_over_tls(cluster: Cluster, tmp_path: Path) -> None:
    server = certified("console", hosts=("127.0.0.1",))
    both = str(server.write(tmp_path, "console"))
    logins = tmp_path / "logins"
    logins.write_text("anna:correct horse\n")
    logins.chmod(0o600)
    options = ("--certificate", both, "--key", both)
    trust = ssl.create_default_context(cadata=server.authority_pem)
    with (
        running_console(cluster.bootstrap_servers, *options, "--logins", str(logins)) as one,
        httpx.Client(base_url=one.address, timeout=30, verify=trust) as browser,
    ):
        assert one.address.startswith("https://")
        redirect = browser.get("/")
        assert redirect.headers["location"] == "/login"
        assert "; Secure" in redirect.headers["set-cookie"]
        browser.cookies.clear()
        assert browser.get("/", auth=("anna", "wrong")).status_code == 401
        page = wait_for(
            lambda: browser.get("/", auth=("anna", "correct horse")),
            lambda response: response.status_code == 200,
        )
        assert "Broker 1" in page.text
        # From here on the session knows who it is.
        assert "anna" in browser.get("/topics").text


def test_a_console_with_open_streams_ends_with_sigterm(cluster: Cluster) -> None:
    with (
        running_console(cluster.bootstrap_servers) as one,
        httpx.Client(base_url=one.address, timeout=30) as browser,
    ):
        wait_until(lambda: browser.get("/").status_code == 200, "the first snapshot")
        with browser.stream("GET", "/events?after=0") as events:
            lines = events.iter_lines()
            assert next(lines).startswith("event: ")
            one.process.send_signal(signal.SIGTERM)
            assert "event: ended" not in list(lines)
        assert one.process.wait(30) == 0
        assert one.process.stderr is not None
        assert one.process.stderr.read() == ""


def test_pages_keep_the_last_snapshot_while_the_cluster_is_away(
    cluster: Cluster, browser: httpx.Client
) -> None:
    wait_until(lambda: "orders" in browser.get("/topics").text, "the topic")
    cluster.stop()
    try:
        text = wait_for(
            lambda: browser.get("/topics").text,
            lambda page: "The cluster does not respond." in page,
        )
        assert "orders" in text
        # A page that asks the cluster itself says so, and does not wait for long.
        assert "The settings cannot be read" in browser.get("/topics/orders").text
    finally:
        cluster.start()
    wait_until(
        lambda: "The cluster does not respond." not in browser.get("/topics").text,
        "the cluster again",
    )
