"""The mechanisms of a server against those of our client, and against what others may send."""

import secrets
from collections.abc import Callable

import pytest

from spindle.client.errors import SaslFailed
from spindle.client.security.mechanisms import SaslExchange, plain_exchange, scram_exchange
from spindle.client.security.settings import PlainLogin, ScramLogin
from spindle.common.errors import ConfigError
from spindle.security.jaas import parse_jaas
from spindle.security.scram import (
    ScramCredential,
    ScramMechanism,
    client_final,
    client_final_without_proof,
    client_first,
    client_first_bare,
    parse_server_first,
    salted_password,
    server_key,
    stored_key,
)
from spindle.security.secret import Secret
from spindle.security.server.mechanism import LoggedIn, LoginRefused, ServerExchange
from spindle.security.server.plain import plain_server_exchange, plain_users
from spindle.security.server.scram import ScramServer, TokenCredential

SHA_256 = ScramMechanism.SCRAM_SHA_256
USERS = {"alice": Secret("wonder"), "zoë": Secret("pässword")}
ODD_NAME = "a=b,c ü"


def credential(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    salted = salted_password(mechanism, password, b"salt of the user", iterations)
    return ScramCredential(
        b"salt of the user",
        stored_key(mechanism, salted),
        server_key(mechanism, salted),
        iterations,
    )


def scram_server(mechanism: ScramMechanism = SHA_256, iterations: int = 4096) -> ServerExchange:
    known = credential(mechanism, "wonder", iterations)
    tokens = {"token-1": TokenCredential("User:bob", known, expires_at_ms=777)}
    users = {"alice": known, ODD_NAME: known}
    return ScramServer(mechanism, users.get, tokens.get).exchange()


def scram_client(user: str, password: str = "wonder", *, is_token: bool = False) -> SaslExchange:
    login = ScramLogin(SHA_256, user, Secret(password), is_token=is_token)
    return scram_exchange(login, lambda: secrets.token_urlsafe(18))


def log_in(client: SaslExchange, server: ServerExchange) -> LoggedIn:
    """Let both sides talk until the server knows the user and the client is satisfied."""
    next(server)
    message = next(client)
    while True:
        try:
            message = client.send(server.send(message))
        except StopIteration as end:
            outcome: LoggedIn = end.value
            break
    with pytest.raises(StopIteration):
        client.send(outcome.answer)
    return outcome


def refusal(server: ServerExchange, message: bytes) -> LoginRefused:
    next(server)
    with pytest.raises(LoginRefused) as refused:
        server.send(message)
    return refused.value


@pytest.mark.parametrize("name", USERS)
def test_a_user_of_plain_logs_in(name: str) -> None:
    client = plain_exchange(PlainLogin(name, USERS[name]))
    assert log_in(client, plain_server_exchange(USERS)) == LoggedIn(name)


def test_plain_accepts_the_own_name_as_the_user_to_act_as() -> None:
    server = plain_server_exchange(USERS)
    next(server)
    with pytest.raises(StopIteration) as end:
        server.send(b"alice\0alice\0wonder")
    assert end.value.value == LoggedIn("alice")


@pytest.mark.parametrize(
    ("message", "text", "reason"),
    [
        (b"\0alice\0wrong", "Invalid username or password", "wrong password"),
        (b"\0alice\0", "password not specified", "password not specified"),
        (b"\0\0wonder", "username not specified", "username not specified"),
        (b"\0eve\0wonder", "Invalid username or password", "unknown user"),
        (
            b"bob\0alice\0wonder",
            "Client requested an authorization id that is different from username",
            "Client requested an authorization id that is different from username",
        ),
        (b"\0alice\0w\xff", "Invalid SASL/PLAIN response: not UTF-8", "not UTF-8"),
    ],
)
def test_plain_refuses_with_the_texts_of_kafka(message: bytes, text: str, reason: str) -> None:
    refused = refusal(plain_server_exchange(USERS), message)
    assert refused.client_text == f"Authentication failed: {text}"
    assert reason in str(refused)
    assert "wonder" not in str(refused)


@pytest.mark.parametrize(
    ("message", "count"), [(b"", 1), (b"alice", 1), (b"a\0b", 2), (b"\0a\0b\0c", 4)]
)
def test_plain_wants_three_parts(message: bytes, count: int) -> None:
    text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}"
    assert refusal(plain_server_exchange(USERS), message).client_text == text


def test_the_users_of_plain_come_from_the_login_module() -> None:
    module = parse_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="x" user_admin="x" user_a.b="y=;";'
    )
    assert plain_users(module) == {"admin": Secret("x"), "a.b": Secret("y=;")}


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("org.apache.kafka.common.security.scram.ScramLoginModule required;", "PlainLoginModule"),
        ("org.apache.kafka.common.security.plain.PlainLoginModule required;", "has no user"),
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="";',
            "user_a: name and password must not be empty",
        ),
    ],
)
def test_a_login_module_of_plain_that_cannot_serve_is_refused(text: str, trouble: str) -> None:
    with pytest.raises(ConfigError, match=trouble):
        plain_users(parse_jaas(text))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_user_of_scram_logs_in(mechanism: ScramMechanism) -> None:
    login = ScramLogin(mechanism, "alice", Secret("wonder"))
    client = scram_exchange(login, lambda: "nonce")
    assert log_in(client, scram_server(mechanism))[:1] == ("alice",)


def test_a_user_of_scram_may_have_a_name_with_signs_and_letters_of_any_language() -> None:
    assert log_in(scram_client(ODD_NAME), scram_server()).user == ODD_NAME


def test_a_delegation_token_logs_its_owner_in_until_it_ends() -> None:
    outcome = log_in(scram_client("token-1", is_token=True), scram_server())
    assert (outcome.user, outcome.is_token, outcome.expires_at_ms) == ("bob", True, 777)


@pytest.mark.parametrize(
    ("client", "server", "reason"),
    [
        (lambda: scram_client("alice", "wrong"), scram_server, "wrong password"),
        (lambda: scram_client("eve"), scram_server, "unknown user"),
        (lambda: scram_client("token-1"), scram_server, "unknown user"),
        (lambda: scram_client("no", is_token=True), scram_server, "unknown delegation token"),
        (lambda: scram_client("alice", is_token=True), scram_server, "unknown delegation token"),
        (lambda: scram_client("alice"), lambda: scram_server(iterations=100), "100 iterations"),
    ],
)
def test_scram_refuses_only_after_the_proof_and_gives_the_client_no_reason(
    client: Callable[[], SaslExchange], server: Callable[[], ServerExchange], reason: str
) -> None:
    login, exchange = client(), server()
    next(exchange)
    challenge = exchange.send(next(login))
    if "iterations" in reason:
        with pytest.raises(SaslFailed, match="100 iterations"):
            login.send(challenge)
        proof = b"c=biws,r=" + challenge.split(b",")[0][2:] + b",p=AAAA"
    else:
        proof = login.send(challenge)
    with pytest.raises(LoginRefused, match=reason) as refused:
        exchange.send(proof)
    assert refused.value.client_text is None


def test_the_salt_of_an_unknown_user_stays_the_same_and_is_its_own() -> None:
    def salt(user: str) -> bytes:
        exchange = scram_server()
        next(exchange)
        first = exchange.send(client_first(client_first_bare(user, "nonce", is_token=False)))
        return parse_server_first(first, "nonce").salt

    assert salt("eve") == salt("eve") != salt("mallory")
    assert len(salt("eve")) > 15


FIRST = client_first(client_first_bare("alice", "nonce", is_token=False))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n=alice,r=nonce",
        b"y,,n=alice,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,,n=,r=nonce",
        b"n,,n=a=b,r=nonce",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=non,ce",
        b"n,,n=alice,r=nonce," + b"x=1," * 1000,
        b"n" * 100_000,
    ],
)
def test_scram_refuses_a_malformed_first_message(message: bytes) -> None:
    assert "SCRAM message is " in str(refusal(scram_server(), message))


def test_scram_refuses_another_user_to_act_as() -> None:
    refused = refusal(scram_server(), b"n,a=bob,n=alice,r=nonce")
    assert "authorization id" in (refused.client_text or "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda final: final.replace(b"r=nonce", b"r=other"), "another nonce"),
        (lambda final: final.replace(b"r=nonce", b"r=xnonce"), "another nonce"),
        (lambda final: final.replace(b"c=biws", b"c=eSws"), "another channel binding"),
        (lambda final: final[:-4], "wrong password"),
        (lambda final: final + b"!", "malformed"),
        (lambda final: b"", "malformed"),
    ],
)
def test_scram_refuses_a_last_message_that_does_not_belong_to_the_first(
    change: Callable[[bytes], bytes], reason: str
) -> None:
    exchange = scram_server()
    next(exchange)
    server = parse_server_first(exchange.send(FIRST), "nonce")
    final = client_final(client_final_without_proof(server.nonce), b"p" * 33)
    with pytest.raises(LoginRefused, match=reason):
        exchange.send(change(final))
