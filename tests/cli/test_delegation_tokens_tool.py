"""The output of `kafka-delegation-tokens`, as Apache Kafka 4.3.1 prints it."""

import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from spindle.cli.tools.delegation_tokens import delegation_tokens, tokens_table
from spindle.client.admin.delegation_tokens import KnownToken

TOKEN = KnownToken(
    "18lk5jmkRFy9Pr26S4zXRw",
    bytes(range(64)),
    "User:alice",
    "User:alice",
    ("User:bob", "User:carol"),
    1_795_488_240_000,
    1_795_574_640_000,
    1_796_093_040_000,
)
HEADING = (
    "TOKENID         HMAC                           OWNER           REQUESTER       "
    "RENEWERS                  ISSUEDATE       EXPIRYDATE      MAXDATE        "
)
ROW = (
    "18lk5jmkRFy9Pr26S4zXRw AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4v"
    "MDEyMzQ1Njc4OTo7PD0+Pw== User:alice      User:alice      [User:bob, User:carol]    "
    "2026-11-24T02:44 2026-11-25T02:44 2026-12-01T02:44"
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_tokens_stand_in_a_table_with_empty_lines() -> None:
    assert tokens_table([]) == f"\n{HEADING}"
    assert tokens_table([TOKEN]) == f"\n{HEADING}\n\n{ROW}"


def test_a_token_is_not_printed_by_accident() -> None:
    assert "AAEC" not in repr(TOKEN)
    assert "\\x01" not in repr(TOKEN)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--create --renew", "Give exactly one of --create, --renew, --expire, --describe."),
        ("--create", "--max-life-time-period is missing"),
        ("--renew --hmac AAAA", "--renew-time-period is missing"),
        ("--describe --hmac AAAA", "--describe cannot be used with --hmac"),
        ("--expire --hmac ! --expiry-time-period -1", "--hmac: base64 is needed"),
        (
            "--create --max-life-time-period -1 --renewer-principal bob",
            "--renewer-principal bob: write User:NAME",
        ),
        (
            "--create --max-life-time-period -1 --owner-principal User:",
            "--owner-principal User:: write User:NAME",
        ),
    ],
)
def test_mistakes_are_named(words: str, text: str) -> None:
    invocation = CliRunner().invoke(delegation_tokens, ["-b", "127.0.0.1:1", *words.split()])
    assert invocation.exit_code != 0
    assert text in invocation.output + str(invocation.exception)
