"""The console over a node of Apache Kafka: every page, and what Kafka does not report."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from console_process import running_console
from peers.node import KafkaNode
from waiting import wait_until

from spindle.cli.main import run


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    one = KafkaNode(tmp_path_factory.mktemp("kafka"))
    try:
        one.format()
        one.start()
        yield one
    finally:
        one.remove()


@pytest.fixture(scope="module")
def browser(node: KafkaNode) -> Iterator[httpx.Client]:
    assert run(["topic", "create", "orders", "-p", "3", "-b", node.bootstrap]) == 0
    with (
        running_console(node.bootstrap, "--allow-changes") as console,
        httpx.Client(base_url=console.address, timeout=30, follow_redirects=True) as client,
    ):
        wait_until(lambda: "orders" in client.get("/topics").text, "the topic in a snapshot")
        yield client


def query(node: KafkaNode, path: Path) -> str:
    return f"broker={node.node_id}&path={quote(str(path), safe='')}"


def test_every_page_answers(node: KafkaNode, browser: httpx.Client) -> None:
    overview = browser.get("/").text
    assert f"Broker {node.node_id}" in overview
    assert all(f"path={quote(str(path), safe='')}" in overview for path in node.log_dirs)
    topic = browser.get("/topics/orders").text
    assert "retention.ms" in topic
    assert "not reported" not in topic
    assert browser.get("/log").status_code == 200
    assert browser.get("/groups").status_code == 200


def test_a_value_that_kafka_does_not_report_is_grey_with_its_reason(
    node: KafkaNode, browser: httpx.Client
) -> None:
    page = browser.get(f"/disk?{query(node, node.log_dirs[0])}").text
    assert re.search(
        r'<div class="off"><dt>Traffic</dt>.*brokers of Apache Kafka do not report it', page
    )


def test_an_action_cordons_a_directory(node: KafkaNode, browser: httpx.Client) -> None:
    path = node.log_dirs[1]
    address = f"/actions/cordon?{query(node, path)}"
    token = re.findall(r'name="csrf" value="(\w+)"', browser.get(address).text)[0]
    form = {
        "csrf": token,
        "broker": str(node.node_id),
        "path": str(path),
        "confirmation": f"{node.node_id}:{path}",
    }
    page = browser.post("/actions/cordon", data=form)
    assert page.url.path == "/log", html.unescape(page.text)
    wait_until(
        lambda: "Uncordon" in browser.get(f"/disk?{query(node, path)}").text,
        "the cordon in a snapshot",
    )
