"""OAUTHBEARER: where tokens come from, and properties that are refused."""

import contextlib
import http.server
import json
import ssl
import tempfile
import threading
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from certificates import certified

from spindle.client.errors import ConnectionLost, SaslFailed, TlsFailed
from spindle.client.security.token_settings import TokenLogin, token_login
from spindle.client.security.tokens import TokenSource
from spindle.common.errors import ConfigError

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
HANDLER = {"sasl.login.callback.handler.class": f"{PACKAGE}OAuthBearerLoginCallbackHandler"}
URL = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = {"clientId": "me", "clientSecret": "hush:é"}
SERVER = certified("login", hosts=("127.0.0.1",))


def jwt(**claims: object) -> str:
    body = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def claims_of(token: str) -> dict[str, object]:
    body = token.split(".")[1]
    return dict(json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4))))


class Endpoint:
    """The answers of a token endpoint, and the requests that it got."""

    def __init__(self) -> None:
        self.status = 200
        self.body: bytes = b"{}"
        self.never_ends = False
        self.requests: list[tuple[str, str | None, dict[str, list[str]]]] = []
        self.url = ""

    def login(self, **properties: str) -> TokenLogin:
        return token_login(CREDENTIALS, HANDLER | {URL: self.url} | properties)


@contextlib.contextmanager
def endpoint(*, tls: bool = False) -> Iterator[Endpoint]:
    """Serve a token endpoint."""
    served = Endpoint()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            served.requests.append((self.path, self.headers["Authorization"], parse_qs(body)))
            while served.never_ends:
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.send_response(served.status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(served.body)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(http.server.HTTPServer):
        def handle_error(self, *_: object) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            with tempfile.NamedTemporaryFile(suffix=".pem") as file:
                file.write(SERVER.key_store_pem().encode())
                file.flush()
                context.load_cert_chain(file.name)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        served.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/token?x=1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def test_an_unsecured_token_has_the_claims_of_the_options() -> None:
    login = token_login(
        {
            "unsecuredLoginStringClaim_sub": "alice",
            "unsecuredLoginNumberClaim_level": "3.5",
            "unsecuredLoginListClaim_scope": "|a|b",
            "unsecuredLoginLifetimeSeconds": "60",
            "unsecuredLoginExtension_traceId": "1",
        },
        {},
    )
    token = TokenSource(login, lambda: 1000.0).token().text
    assert token.endswith(".")
    assert claims_of(token) == {
        "iat": 1000,
        "exp": 1060,
        "sub": "alice",
        "level": 3.5,
        "scope": ["a", "b"],
    }
    assert login.extensions == (("traceId", "1"),)


def test_a_token_file_is_read_for_every_login(tmp_path: Path) -> None:
    path = tmp_path / "my token"
    source = TokenSource(token_login({}, HANDLER | {URL: f"file://{tmp_path}/my%20token"}))
    with pytest.raises(ConfigError, match=r"cannot be read on .* No such file"):
        source.token()
    for token in ("first.token", "second.token"):
        path.write_text(f"{token}\n")
        assert source.token().text == token
    path.write_text("not a\ttoken")
    with pytest.raises(ConfigError, match="does not hold one token"):
        source.token()


@pytest.mark.parametrize("is_encoded", [False, True])
def test_an_endpoint_gets_the_client_credentials(is_encoded: bool) -> None:
    with endpoint() as served:
        served.body = json.dumps({"access_token": jwt(sub="me")}).encode()
        login = served.login(
            **{
                "sasl.oauthbearer.scope": "read write",
                "sasl.oauthbearer.header.urlencode": str(is_encoded).lower(),
            }
        )
        assert TokenSource(login).token().text == jwt(sub="me")
        secret = "hush%3A%C3%A9" if is_encoded else "hush:é"
        basic = b64encode(f"me:{secret}".encode()).decode()
        form = {"grant_type": ["client_credentials"], "scope": ["read write"]}
        assert served.requests == [("/token?x=1", f"Basic {basic}", form)]


def test_a_token_is_used_again_for_most_of_its_life() -> None:
    now = [1000.0]
    with endpoint() as served:
        served.body = json.dumps({"access_token": jwt(exp=1100)}).encode()
        source = TokenSource(served.login(), lambda: now[0])
        for seconds, requests in ((1000, 1), (1079, 1), (1081, 2)):
            now[0] = float(seconds)
            source.token()
            assert len(served.requests) == requests


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, b'{"error": "invalid_client"}', SaslFailed, "401 ('invalid_client'): check client"),
        (302, b"", SaslFailed, "status 302 ('no reason given')"),
        (503, b"", ConnectionLost, "status 503"),
        (200, b"<html>", SaslFailed, "no usable access_token"),
        (200, b'{"access_token": "a\\u0001b"}', SaslFailed, "no usable access_token"),
        (200, b"[]", SaslFailed, "no usable access_token"),
        (200, b"[" * 200_000, SaslFailed, "no usable access_token"),
    ],
)
def test_a_refusal_of_the_endpoint_is_explained(
    status: int, body: bytes, kind: type[Exception], words: str
) -> None:
    with endpoint() as served:
        served.status, served.body = status, body
        with pytest.raises(kind) as raised:
            TokenSource(served.login()).token()
    assert words in str(raised.value)
    assert "hush" not in str(raised.value)


def test_an_endpoint_with_tls_is_verified_by_the_options_of_the_login_module() -> None:
    trust = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": SERVER.authority_pem,
    }
    with endpoint(tls=True) as served:
        served.body = json.dumps({"access_token": jwt(sub="me")}).encode()
        login = token_login(CREDENTIALS | trust, HANDLER | {URL: served.url})
        assert TokenSource(login).token().text == jwt(sub="me")
        with pytest.raises(TlsFailed, match=r"token endpoint .* is not trusted"):
            TokenSource(served.login(**trust)).token()


@pytest.mark.parametrize("tls", [False, True])
def test_an_endpoint_whose_answer_never_ends_times_out(tls: bool) -> None:
    trust = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": SERVER.authority_pem,
    }
    with endpoint(tls=tls) as served:
        served.never_ends = True
        timeout = {"sasl.login.read.timeout.ms": "300"}
        login = token_login(CREDENTIALS | trust, HANDLER | timeout | {URL: served.url})
        with pytest.raises(ConnectionLost, match="did not answer within 300 ms"):
            TokenSource(login).token()


@pytest.mark.parametrize("expiry", ["Infinity", "-Infinity", "NaN", "1e400", "1e18", "-1", '"1"'])
def test_a_token_that_ends_at_no_time_is_refused(expiry: str) -> None:
    claims = urlsafe_b64encode(f'{{"exp": {expiry}}}'.encode()).decode().rstrip("=")
    with endpoint() as served:
        served.body = json.dumps({"access_token": f"e30.{claims}.c2ln"}).encode()
        with pytest.raises(SaslFailed, match=r"has the claim exp .*, want seconds since 1970"):
            TokenSource(served.login()).token()


def test_an_endpoint_that_is_not_there_is_a_lost_connection() -> None:
    login = token_login(CREDENTIALS, HANDLER | {URL: "http://127.0.0.1:1/"})
    with pytest.raises(ConnectionLost, match=r"token endpoint http://127.0.0.1:1/ failed"):
        TokenSource(login).token()


@pytest.mark.parametrize(
    ("options", "properties", "words"),
    [
        ({}, {}, "an unsecured token needs a principal"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_n": "x"}, {}, "number"),
        (
            {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "0"},
            {},
            "unsecuredLoginLifetimeSeconds is '0'",
        ),
        (
            {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "9" * 400},
            {},
            "want 1 to 2147483647",
        ),
        (
            {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_n": "inf"},
            {},
            "unsecuredLoginNumberClaim_n is 'inf', want a finite number",
        ),
        (
            {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginExtension_auth": "x"},
            {},
            "unsecuredLoginExtension_auth has a name",
        ),
        ({}, {"sasl.login.callback.handler.class": "my.Handler"}, "is Java code"),
        ({}, HANDLER, f"{URL} is missing"),
        ({}, HANDLER | {URL: "ftp://x"}, "https or a file URL"),
        ({}, HANDLER | {URL: "https://x:99999/"}, "https or a file URL"),
        ({}, HANDLER | {URL: "https://[x/"}, "https or a file URL"),
        ({}, HANDLER | {URL: "https://me:hush@x/"}, "has a user or a password"),
        ({}, HANDLER | {URL: "https://x/"}, "client.id is missing"),
        ({"clientId": "me"}, HANDLER | {URL: "https://x/"}, "client.secret is missing"),
        (
            {},
            HANDLER | {"sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}JwtBearerJwtRetriever"},
            "'JwtBearerJwtRetriever' is not supported",
        ),
        (
            CREDENTIALS,
            HANDLER | {URL: "https://x/", "sasl.login.read.timeout.ms": "soon"},
            "sasl.login.read.timeout.ms is 'soon'",
        ),
    ],
)
def test_properties_that_give_no_token_are_refused(
    options: dict[str, str], properties: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        token_login(options, properties)
    assert words in str(raised.value)
    assert "hush" not in str(raised.value)
