"""A node with TLS listeners: records, principals, renewed certificates, and what is refused."""

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Certified, certified
from node_harness import (
    Client,
    Home,
    batch_of,
    records_in,
    running,
)

from spindle.common.errors import ConfigError
from spindle.config.node_config import NodeConfig
from spindle.protocol.api import ApiKey
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.runtime import detached_threads
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network import renewable_tls as renewable_tls_module
from spindle.runtime.network import tls_source as tls_source_module
from spindle.runtime.network.listener_tls import ListenerTls
from spindle.runtime.network.tls_listeners import TlsListeners
from spindle.runtime.network.tls_source import tls_source
from spindle.runtime.node import Node
from spindle.security import stores as stores_module
from spindle.security.tls_settings import ClientAuth
from spindle.serving.context import RequestContext

HOSTS = ("127.0.0.1",)
NOW_MS = 1_800_000_000_000


def stores(own: Certified, folder: Path, name: str = "server") -> dict[str, str]:
    """Return the keys of a listener, without prefix, for files that are written now."""
    trust_file = folder / "ca.pem"
    trust_file.write_text(own.authority_pem)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.write(folder, name)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust_file),
    }


def secured_home(folder: Path, **further: str) -> Home:
    """Return a node with the listeners PLAINTEXT, SECURE and CONTROLLER, the last two with TLS.

    In names of `further`, `_` stands for a dot.
    """
    protocols = "PLAINTEXT:PLAINTEXT,SECURE:SSL,CONTROLLER:SSL"
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": protocols,
        **stores(certified("broker", hosts=HOSTS), folder),
        "listener.name.secure.ssl.client.auth": "requested",
    }
    return Home(folder, directories=1, **{**keys, **further})


def client_side(own: Certified | None = None, folder: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certified("any").authority_pem)
    if own is not None and folder is not None:
        context.load_cert_chain(own.write(folder, "client"))
    return context


@asynccontextmanager
async def secured(
    node: Node, context: ssl.SSLContext, listener: int = 1
) -> AsyncIterator[tuple[Client, str]]:
    """Yield a client and the common name of the certificate that the node has shown it."""
    assert node.broker is not None
    port = node.broker.listeners[listener].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        shown = writer.get_extra_info("peercert")["subject"][0][0][1]
        yield Client(reader, writer), shown
    finally:
        writer.close()


def secure_listener(tls: TlsListeners, config: NodeConfig) -> ListenerTls:
    """Return the TLS of the listener SECURE."""
    (endpoint,) = [at for at in config.listeners if at.listener == "SECURE"]
    listener_tls = tls.security_of(endpoint).tls
    assert listener_tls is not None
    return listener_tls


def principals_of_metadata(node: Node, listener: int = 1) -> list[str]:
    """Return a list that grows by the sender of each Metadata request of a listener."""
    assert node.broker is not None
    secure = node.broker.listeners[listener]
    handle = secure.handlers[ApiKey.METADATA]
    principals: list[str] = []

    def noting(context: RequestContext, request: Any) -> Any:
        principals.append(context.principal)
        return handle(context, request)

    secure.handlers = {**secure.handlers, ApiKey.METADATA: noting}
    return principals


async def test_records_go_through_a_tls_listener_and_the_client_is_who_its_certificate_says(
    tmp_path: Path,
) -> None:
    value = os.urandom(300_000)
    home = secured_home(tmp_path).format()

    async with running(home) as node:
        principals = principals_of_metadata(node)
        context = client_side(certified("alice"), tmp_path)
        async with secured(node, context) as (client, _):
            await client.create_topic("t")
            assert (await client.produce("t", 0, batch_of(value))).error_code == 0
            # From the file, where a listener without TLS would use sendfile.
            fetched = await client.fetch("t", 0, 0)
            assert [record.value for record in records_in(fetched.records)] == [value]
            await client.ask(MetadataRequest())
            assert set(principals) == {"User:CN=alice"}
        async with secured(node, client_side()) as (client, _):
            await client.ask(MetadataRequest())
            assert principals[-1] == "User:ANONYMOUS"


def alter(values: dict[str, str]) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=f"listener.name.secure.{name}", value=value)
        for name, value in values.items()
    ]
    return IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=4, resource_name="1", configs=configs)]
    )


async def shown_name(node: Node) -> str:
    async with secured(node, client_side()) as (_, shown):
        return shown


async def test_a_changed_configuration_renews_the_key_and_a_bad_one_leaves_the_present(
    tmp_path: Path,
) -> None:
    home = secured_home(tmp_path, ssl_allow_dn_changes="true").format()

    async with running(home) as node, secured(node, client_side()) as (client, shown):
        assert shown == "broker"
        bad = {"ssl.keystore.location": str(tmp_path / "none.pem")}
        refused = (await client.ask(alter(bad))).responses[0]
        assert refused.error_code == 42
        assert "listener SECURE: ssl.keystore.location" in refused.error_message
        assert "cannot be read" in refused.error_message
        fewer = stores(certified("renewed"), tmp_path, "fewer")
        refused = (await client.ask(alter(fewer))).responses[0]
        assert "lacks 1 of the alternative names" in refused.error_message
        assert await shown_name(node) == "broker"
        renewed = stores(certified("renewed", hosts=HOSTS), tmp_path, "renewed")
        assert (await client.ask(alter(renewed))).responses[0].error_code == 0
        while await shown_name(node) != "renewed":  # noqa: ASYNC110
            await asyncio.sleep(0)
        # The connection of before goes on, and so does the other listener with its key.
        await client.ask(ApiVersionsRequest(), version=0)


async def test_a_changed_file_renews_the_key_and_a_bad_one_leaves_the_present(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = secured_home(tmp_path).format()

    async with running(home) as node, secured(node, client_side()) as (client, _):
        assert node.tls is not None
        before = secure_listener(node.tls, home.config()).loaded.key.certificate
        (tmp_path / "server.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n")
        for _ in range(2):
            await node.tls.renew(may_rename=False)
        assert await shown_name(node) == "broker"
        certified("other", hosts=HOSTS).write(tmp_path, "server")
        await node.tls.renew(may_rename=False)
        assert await shown_name(node) == "broker"
        certified("broker", hosts=HOSTS, days=30).write(tmp_path, "server")
        await node.tls.renew(may_rename=False)
        assert await shown_name(node) == "broker"
        assert secure_listener(node.tls, home.config()).loaded.key.certificate != before
        await client.ask(ApiVersionsRequest(), version=0)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    secure = [text for text in errors if "listener SECURE" in text]
    assert len(secure) == 2
    assert "the present ones stay: listener SECURE: ssl.keystore.location" in secure[0]
    assert "is for CN=other, the present one for CN=broker" in secure[1]


async def test_a_renewed_file_that_cannot_be_read_at_first_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NodeConfig.from_properties(secured_home(tmp_path).properties)

    def refuse(path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    tls = TlsListeners(config, lambda: NOW_MS, RequestMetrics())
    listener = secure_listener(tls, config)
    before = listener.loaded
    certified("broker", hosts=HOSTS, days=9).write(tmp_path, "server")
    with monkeypatch.context() as patch:
        patch.setattr(stores_module, "read_small_file", refuse)
        await tls.renew(may_rename=False)
        patch.setattr(renewable_tls_module, "_RETRY_S", 0.0)
        await tls.renew(may_rename=False)  # which was not due
        (tmp_path / "server.pem").chmod(0o600)
        await tls.renew(may_rename=False)
    assert listener.loaded is before
    await tls.renew(may_rename=False)
    assert listener.loaded is not before
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len([text for text in errors if "SECURE" in text and "Permission denied" in text]) == 1


async def test_a_client_without_tls_is_named_in_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = secured_home(tmp_path).format()

    async with running(home) as node:
        assert node.broker is not None
        for _ in range(2):
            port = node.broker.listeners[1].port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00\x00\x01")
            with_alert = await reader.read()
            assert with_alert[:1] in (b"", b"\x15")
            writer.close()
        assert node.request_metrics.failed_authentications == 2
    lines = [r.getMessage() for r in caplog.records if "no TLS with" in r.getMessage()]
    assert lines == [
        "listener SECURE: no TLS with the client at 127.0.0.1: it does not speak TLS: its "
        "security.protocol has to be SSL or SASL_SSL"
    ]


async def test_a_tls_client_at_a_listener_without_tls_is_named_in_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = secured_home(tmp_path).format()

    async with running(home) as node:
        for _ in range(2):
            with pytest.raises(OSError, match=r".*"):
                async with secured(node, client_side(), listener=0):
                    raise AssertionError("the handshake was done")
    lines = [r.getMessage() for r in caplog.records if "closing the" in r.getMessage()]
    assert len(lines) == 1
    assert "the peer speaks TLS, but this side does not: check security.protocol" in lines[0]


async def trouble(folder: Path, changes: dict[str, str | None]) -> str:
    """Return why a node with these keys does not start; None removes a key."""
    home = secured_home(folder)
    merged = {**home.properties, **changes}
    properties = {key: value for key, value in merged.items() if value is not None}

    with pytest.raises(ConfigError) as raised:
        TlsListeners(
            NodeConfig.from_properties(properties, must_run=True), lambda: NOW_MS, RequestMetrics()
        )
    assert "PRIVATE KEY" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"ssl.keystore.location": None},
            "listener SECURE: there is no key: set ssl.keystore.location, or ssl.keystore.key",
        ),
        ({"ssl.keystore.location": "/none/key.pem"}, "/none/key.pem cannot be read"),
        ({"ssl.truststore.location": None}, "ssl.client.auth is requested, but there is no trust"),
        ({"listener.name.secure.ssl.client.auth": "maybe"}, "ssl.client.auth is 'maybe'"),
        ({"listener.name.secure.ssl.protocol": "SSLv3"}, "ssl.protocol has 'SSLv3'"),
        ({"listener.name.secure.ssl.provider": "x"}, "ssl.provider is not supported"),
        ({"ssl.keystore.password": "x"}, "a store of type PEM has none"),
        (
            {"listener.name.secure.ssl.principal.mapping.rules": "RULE:x"},
            "ssl.principal.mapping.rules: cannot parse 'RULE:x'",
        ),
        (
            {"ssl.keystore.location": None, "ssl.keystore.certificate.chain": "x"},
            "ssl.keystore.key is missing",
        ),
    ],
)
async def test_a_node_whose_tls_cannot_work_does_not_start(
    tmp_path: Path, changes: dict[str, str | None], words: str
) -> None:
    assert words in await trouble(tmp_path, changes)


async def test_a_java_key_store_is_answered_with_the_line_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    keys = {
        "ssl.keystore.type": None,
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "x",
    }
    assert f"`keytool -importkeystore -srckeystore {store}" in await trouble(tmp_path, keys)


async def test_a_key_that_does_not_belong_to_its_certificate_is_refused(tmp_path: Path) -> None:
    own, other = certified("broker"), certified("broker")
    keys = {
        "ssl.keystore.location": None,
        "ssl.keystore.key": own.key_pem(),
        "ssl.keystore.certificate.chain": other.certificate_pem,
    }
    text = await trouble(tmp_path, keys)
    assert "the private key does not belong to the first certificate" in text


def between_brokers(folder: Path, trusted: Certified) -> dict[str, str | None]:
    """Return keys of a node whose brokers connect over TLS and trust the authority of `trusted`."""
    return {
        "security.inter.broker.protocol": None,
        "inter.broker.listener.name": "SECURE",
        "listener.name.secure.ssl.truststore.type": "PEM",
        "listener.name.secure.ssl.truststore.location": None,
        "listener.name.secure.ssl.truststore.certificates": trusted.authority_pem,
        "ssl.truststore.location": None,
    }


async def test_brokers_that_would_refuse_each_other_do_not_start(tmp_path: Path) -> None:
    keys = between_brokers(tmp_path, certified("stranger", authority="stranger"))
    assert "listener SECURE: brokers with these keys would refuse each other" in await trouble(
        tmp_path, keys
    )


async def test_a_certificate_that_other_brokers_do_not_trust_yet_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = between_brokers(tmp_path, certified("broker"))
    merged = {**secured_home(tmp_path).properties, **keys}
    config = NodeConfig.from_properties({k: v for k, v in merged.items() if v is not None})

    tls = TlsListeners(config, lambda: NOW_MS, RequestMetrics())
    before = secure_listener(tls, config).loaded
    certified("broker", hosts=HOSTS, authority="stranger").write(tmp_path, "server")
    await tls.renew(may_rename=False)
    assert secure_listener(tls, config).loaded is before
    certified("broker", hosts=HOSTS, days=9).write(tmp_path, "server")
    await tls.renew(may_rename=False)
    assert secure_listener(tls, config).loaded is not before
    assert "brokers with these keys would refuse each other" in caplog.text


async def test_an_expired_certificate_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = secured_home(tmp_path)
    expired = stores(certified("old", hosts=HOSTS, days=-2), tmp_path, "old")

    TlsListeners(
        NodeConfig.from_properties({**home.properties, **expired}),
        lambda: NOW_MS,
        RequestMetrics(),
    )
    assert "listener SECURE: the certificate of CN=old has expired on 20" in caplog.text


def test_only_its_own_key_asks_clients_of_a_sasl_listener_for_certificates(tmp_path: Path) -> None:
    asks = []
    for own in ({}, {"listener.name.secure.ssl.client.auth": "required"}):
        properties = {
            **secured_home(tmp_path).properties,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:SSL",
            "ssl.client.auth": "requested",
        }
        del properties["listener.name.secure.ssl.client.auth"]
        config = NodeConfig.from_properties({**properties, **own})
        asks.append(tls_source(config, "SECURE").load().settings.client_auth)
    assert asks == [ClientAuth.NONE, ClientAuth.REQUIRED]


async def test_a_store_that_cannot_be_opened_in_time_stops_no_other_work(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.pem")
    home = secured_home(tmp_path).format()

    async with running(home) as node, secured(node, client_side()) as (client, _):
        for _ in range(40):  # more than the event loop's executor has threads
            named = {"ssl.keystore.location": str(tmp_path / "fifo.pem")}
            refused = (await client.ask(alter(named))).responses[0]
            assert "It is not a regular file" in refused.error_message


async def test_a_file_system_that_hangs_is_named_and_the_present_key_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NodeConfig.from_properties(secured_home(tmp_path).properties)
    answers = threading.Event()

    tls = TlsListeners(config, lambda: NOW_MS, RequestMetrics())
    before = secure_listener(tls, config).loaded
    monkeypatch.setattr(detached_threads, "_LIMIT_S", 0.01)
    monkeypatch.setattr(tls_source_module, "store_stamp", lambda path: answers.wait())
    for _ in range(3):
        await tls.renew(may_rename=False)
    assert secure_listener(tls, config).loaded is before
    answers.set()
    assert "listener SECURE: its key store and trust store: not read after 0.01 s" in caplog.text
