"""OAUTHBEARER on a listener: the class that selects the form of its tokens, and mistakes."""

import pytest

from spindle.common.errors import ConfigError
from spindle.config.listener_config import ListenerConfig
from spindle.config.node_config import NodeConfig
from spindle.config.oauthbearer_settings import SignedTokens
from spindle.config.sasl_settings import check_sasl, sasl_settings
from spindle.security.server.token_claims import TokenRules
from spindle.security.server.unsecured_tokens import UnsecuredRules

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
SIGNED = f"{PACKAGE}OAuthBearerValidatorCallbackHandler"
UNSECURED = f"{PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
OWN = "listener.name.login.oauthbearer."
HANDLER = f"{OWN}sasl.server.callback.handler.class"
KEYS = f"{OWN}sasl.oauthbearer."
URL = f"{KEYS}jwks.endpoint.url"
BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "LOGIN://h1:9092,PLAINTEXT://h1:9094,CONTROLLER://h1:9093",
    "advertised.listeners": "LOGIN://h1:9092,PLAINTEXT://h1:9094",
    "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,"
    "CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@h1:9093",
    "log.dirs": "/d1",
    "listener.name.login.sasl.enabled.mechanisms": "OAUTHBEARER",
}


def tokens(values: dict[str, str]) -> SignedTokens | UnsecuredRules | None:
    return sasl_settings(ListenerConfig(NodeConfig(BASE | values), "LOGIN")).tokens


def test_kafkas_class_selects_signed_tokens() -> None:
    signed_tokens = tokens(
        {
            HANDLER: SIGNED,
            URL: "https://id.example/keys",
            f"{KEYS}expected.audience": "kafka,streams",
            "sasl.oauthbearer.expected.issuer": "https://id.example",
            "listener.name.login.sasl.oauthbearer.clock.skew.seconds": "7",
            f"{KEYS}sub.claim.name": " email ",
        }
    )
    assert isinstance(signed_tokens, SignedTokens)
    expected = TokenRules(("kafka", "streams"), "https://id.example", 7, "scope", "email")
    assert signed_tokens.rules == expected
    source = signed_tokens.keys
    assert (source.refresh_ms, source.retry_ms, source.max_retry_ms) == (3_600_000, 100, 10_000)


@pytest.mark.parametrize("claim", ["audience", "issuer"])
def test_audience_and_issuer_must_be_expected_or_explicitly_unverified(claim: str) -> None:
    expected = {f"{KEYS}expected.audience": "kafka", f"{KEYS}expected.issuer": "https://id"}
    values = {HANDLER: SIGNED, URL: "https://a/", **expected}
    del values[f"{KEYS}expected.{claim}"]
    with pytest.raises(ConfigError, match=f"{KEYS}expected.{claim} is missing: set it, or set "):
        tokens(values)
    signed_tokens = tokens(values | {f"{KEYS}allow.unverified.{claim}": "true"})
    assert isinstance(signed_tokens, SignedTokens)
    assert not getattr(signed_tokens.rules, {"audience": "audiences"}.get(claim, claim))


def test_unsecured_tokens_are_accepted_only_by_name() -> None:
    module = f'{PACKAGE}OAuthBearerLoginModule required unsecuredValidatorRequiredScope="a b";'
    signed_tokens = tokens({HANDLER: UNSECURED, f"{OWN}sasl.jaas.config": module})
    assert signed_tokens == UnsecuredRules(required_scope=("a", "b"))
    with pytest.raises(ConfigError, match=rf"{HANDLER} is missing: want {SIGNED}"):
        tokens({})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({HANDLER: "com.example.Own"}, "com.example.Own names Java code"),
        ({}, f"{URL} is missing"),
        ({URL: "http://id.example/keys"}, f"{URL} must be an https or a file URL"),
        ({URL: "https://a/", f"{KEYS}clock.skew.seconds": "-1"}, "skew.seconds is -1, want 0"),
        ({URL: "https://a/", f"{KEYS}jwks.endpoint.refresh.ms": "0"}, "refresh.ms is 0, want 1"),
        ({URL: "https://a/", f"{KEYS}sub.claim.name": " "}, "sub.claim.name must not be empty"),
        ({URL: "https://a/", f"{KEYS}jwt.validator.class": "com.X"}, "com.X names Java code"),
        ({f"{OWN}sasl.jaas.config": "x.OtherModule required;"}, "want the login module"),
    ],
)
def test_a_mistake_stops_the_start_with_the_key(values: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_sasl(NodeConfig(BASE | {HANDLER: SIGNED} | values))
    assert text in str(caught.value)
