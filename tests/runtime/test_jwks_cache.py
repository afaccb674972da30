"""Key sets of identity providers: read again beside the requests, and kept while they cannot be."""

import asyncio
import contextlib
import http.server
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from bearer_tokens import CLAIMS, key_set, public_row, signed
from certificates import certified

from spindle.common.errors import ConfigError
from spindle.runtime.network.jwks_cache import MIN_PAUSE_S, KeySet, KeySets
from spindle.security.server.key_set_source import (
    KeySetSource,
    KeySetUnavailable,
    check_key_set_url,
    read_key_set,
)
from spindle.security.server.oauthbearer import TokenRefused
from spindle.security.server.signing_keys import SigningKeys, UnknownKey, parse_signing_keys
from spindle.security.tls_settings import TlsSettings, tls_settings

HOUR_MS = 3_600_000
SERVER = certified("keys", hosts=("127.0.0.1",))


def source(url: str = "https://id.example/keys", tls: TlsSettings | None = None) -> KeySetSource:
    return KeySetSource(url, HOUR_MS, 1, 1, tls or TlsSettings())


class Provider:
    """A provider whose answers the test sets; None is a failure. `reads` counts the questions."""

    def __init__(self, *names: str) -> None:
        self.names: tuple[str, ...] | None = names
        self.reads = 0
        self.was_read = threading.Event()

    def read(self, source: KeySetSource) -> SigningKeys:
        self.reads += 1
        self.was_read.set()
        if self.names is None:
            raise KeySetUnavailable("it is down")
        return parse_signing_keys(key_set(*map(public_row, self.names)))


@contextlib.asynccontextmanager
async def opened(provider: Provider, times_s: list[float] | None = None) -> AsyncIterator[KeySet]:
    clock = times_s or [0.0]
    keys = KeySet(source(), lambda: 0.5, provider.read, lambda: clock[-1])
    await keys.start()
    try:
        yield keys
    finally:
        await keys.close()


async def until_read(provider: Provider, count: int) -> None:
    while provider.reads < count:
        await asyncio.to_thread(provider.was_read.wait)
        provider.was_read.clear()


async def until_accepted(keys: KeySet, token: str) -> None:
    while True:
        with contextlib.suppress(TokenRefused):
            assert keys.claims(token) == CLAIMS
            return
        await asyncio.sleep(0)


async def test_an_unknown_key_makes_the_set_be_read_again_but_not_by_everybody() -> None:
    provider, times_s = Provider("one"), [0.0]
    async with opened(provider, times_s) as keys:
        provider.names = ("two",)
        with pytest.raises(UnknownKey):
            keys.claims(signed(CLAIMS, "two"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert provider.reads == 1
        times_s.append(MIN_PAUSE_S)
        with pytest.raises(UnknownKey):
            keys.claims(signed(CLAIMS, "two"))
        await until_read(provider, 2)
        await until_accepted(keys, signed(CLAIMS, "two"))
        with pytest.raises(UnknownKey):
            keys.claims(signed(CLAIMS, "one"))


async def test_a_provider_that_is_down_at_the_start_is_tried_again() -> None:
    provider = Provider()
    provider.names = None
    async with opened(provider) as keys:
        with pytest.raises(TokenRefused, match="could not be read yet"):
            keys.claims(signed(CLAIMS))
        await until_read(provider, 3)
        provider.names = ("one",)
        await until_accepted(keys, signed(CLAIMS))


async def test_keys_stay_while_the_provider_is_down() -> None:
    provider, times_s = Provider("one"), [0.0]
    async with opened(provider, times_s) as keys:
        provider.names = None
        times_s.append(MIN_PAUSE_S)
        with pytest.raises(UnknownKey):
            keys.claims(signed(CLAIMS, "two"))
        await until_read(provider, 3)
        assert keys.claims(signed(CLAIMS)) == CLAIMS


async def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "key set.json"
    for content, text in ((None, "No such file"), (b"{}", "no list of at most")):
        if content is not None:
            path.write_bytes(content)
        sets = KeySets(lambda: 0.5)
        sets.of(source(f"file://{tmp_path}/key%20set.json"))
        with pytest.raises(ConfigError, match=rf"jwks\.endpoint\.url: .*{text}"):
            await sets.start()
    path.write_bytes(key_set(public_row("one")))
    keys = sets.of(source(f"file://{tmp_path}/key%20set.json"))
    await sets.start()
    assert keys.claims(signed(CLAIMS)) == CLAIMS
    await sets.close()


@contextlib.contextmanager
def served(folder: Path, status: int, body: bytes) -> Iterator[str]:
    """Serve a document over HTTPS; yield its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(http.server.HTTPServer):
        def handle_error(self, *_: object) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(SERVER.write(folder, "keys"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join()


def test_a_key_set_is_read_over_https_from_a_server_that_is_trusted(tmp_path: Path) -> None:
    trusting = tls_settings(
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": SERVER.authority_pem}
    )
    with served(tmp_path, 200, key_set(public_row("one"))) as url:
        assert read_key_set(source(url, trusting)).claims(signed(CLAIMS)) == CLAIMS
        with pytest.raises(KeySetUnavailable, match=r"certificate of .* is refused"):
            read_key_set(source(url))
    with (
        served(tmp_path, 500, b"oops") as url,
        pytest.raises(KeySetUnavailable, match="status 500"),
    ):
        read_key_set(source(url, trusting))
    with pytest.raises(KeySetUnavailable, match="cannot be read"):
        read_key_set(source(url, trusting))


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example/keys",
        "https:///keys",
        "file:",
        "keys",
        "https://me:pw@x/",
        "https://x:0/",
    ],
)
def test_other_urls_are_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"the\.key must be an https or a file URL") as caught:
        check_key_set_url(url, "the.key")
    assert "pw" not in str(caught.value)
