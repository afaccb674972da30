"""Access to the metrics: basic authentication and TLS."""

import asyncio
import base64
import ssl
from pathlib import Path

import pytest
from certificates import certified
from node_harness import Home, running

from spindle.common.errors import ConfigError
from spindle.runtime.process import NewEventLoop, new_event_loop


async def status(
    port: int, path: str, authorization: str | None = None, tls: ssl.SSLContext | None = None
) -> int:
    """Return the status of the answer to a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    header = "" if authorization is None else f"authorization: {authorization}\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split(b" ")[1])


async def test_metrics_with_a_user_are_for_that_user_alone(tmp_path: Path) -> None:
    home = Home(
        tmp_path, spindle_metrics_listener="127.0.0.1:0", spindle_metrics_user="prom:se:cret"
    )
    async with running(home.format()) as node:
        assert node.metrics_server is not None
        port = node.metrics_server.port
        statuses = {}
        for who in ("", "prom:se:cret", "prom:wrong", "prom", ":", "\u00fc"):
            code = base64.b64encode(who.encode()).decode()
            statuses[who] = await status(port, "/metrics", f"Basic {code}")
        assert statuses == {**dict.fromkeys(statuses, 401), "prom:se:cret": 200}
        for header in ("Basic", "Basic %%%", "Bearer x", ""):
            assert await status(port, "/metrics", header) == 401
        assert await status(port, "/metrics") == 401
        assert await status(port, "/health") == 200


async def test_a_user_without_a_password_is_refused_and_not_shown(tmp_path: Path) -> None:
    home = Home(tmp_path, spindle_metrics_listener="127.0.0.1:0", spindle_metrics_user="prom:")
    with pytest.raises(ConfigError, match=r"^spindle\.metrics\.user: want NAME:PASSWORD$"):
        async with running(home.format()):
            pass


async def test_metrics_are_read_over_tls(tmp_path: Path) -> None:
    key = certified("node", hosts=("127.0.0.1",))
    home = Home(
        tmp_path,
        spindle_metrics_listener="127.0.0.1:0",
        spindle_metrics_security_protocol="SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(key.write(tmp_path, "node")),
    )
    context = ssl.create_default_context(cadata=key.authority_pem)
    async with running(home.format()) as node:
        assert node.metrics_server is not None
        assert await status(node.metrics_server.port, "/metrics", tls=context) == 200


async def shown_name(port: int, context: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    name: str = writer.get_extra_info("peercert")["subject"][0][0][1]
    writer.close()
    return name


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop])
def test_a_renewed_file_counts_for_the_metrics_and_a_bad_one_does_not(
    tmp_path: Path, new_loop: NewEventLoop
) -> None:
    hosts = ("127.0.0.1",)
    first = certified("first", hosts=hosts)
    home = Home(
        tmp_path,
        spindle_metrics_listener="127.0.0.1:0",
        spindle_metrics_security_protocol="SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(first.write(tmp_path, "node")),
        ssl_allow_dn_changes="true",
    )
    context = ssl.create_default_context(cadata=first.authority_pem)

    async def scenario() -> None:
        async with running(home.format()) as node, asyncio.timeout(30):
            assert node.metrics_server is not None
            assert node.tls is not None
            port = node.metrics_server.port
            assert await shown_name(port, context) == "first"
            for content in ("nonsense", None):
                certified("second", hosts=hosts).write(tmp_path, "node")
                if content is not None:
                    (tmp_path / "node.pem").write_text(content)
                await node.tls.renew(may_rename=False)
                expected = "second" if content is None else "first"
                assert [await shown_name(port, context) for _ in range(3)] == [expected] * 3
            assert await status(port, "/metrics", tls=context) == 200

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
