"""Security properties of clients: Kafka's rules, and refusals that name what is supported."""

import pytest

from spindle.client.security.settings import (
    PlainLogin,
    ScramLogin,
    SecuritySettings,
    security_settings,
)
from spindle.common.errors import ConfigError
from spindle.security.scram import ScramMechanism
from spindle.security.secret import Secret

MODULES = "org.apache.kafka.common.security"
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="a" password="hush";'
SCRAM = f'{MODULES}.scram.ScramLoginModule required username="a" password="hush"'


def sasl(mechanism: str, jaas: str, **further: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
        **{name.replace("_", "."): value for name, value in further.items()},
    }


def test_the_default_is_plaintext_and_ignores_what_it_does_not_use() -> None:
    given = {"sasl.mechanism": "GSSAPI", "ssl.truststore.location": "/nowhere"}
    assert security_settings(given) == SecuritySettings("PLAINTEXT", None, None)


def test_logins_come_from_the_login_module() -> None:
    password = Secret("hush")
    assert security_settings(sasl("PLAIN", PLAIN)).login == PlainLogin("a", password)
    login = security_settings(sasl("SCRAM-SHA-512", f"{SCRAM};")).login
    assert login == ScramLogin(ScramMechanism.SCRAM_SHA_512, "a", password)
    token = security_settings(sasl("SCRAM-SHA-256", f"{SCRAM} tokenauth=true;")).login
    assert token == ScramLogin(ScramMechanism.SCRAM_SHA_256, "a", password, is_token=True)


def test_the_renamed_packages_of_databricks_are_known() -> None:
    assert security_settings(sasl("PLAIN", f"kafkashaded.{PLAIN}")).login is not None


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS', want one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing, and GSSAPI (Kerberos)"),
        (sasl("GSSAPI", PLAIN), "'GSSAPI' is not supported: want one of PLAIN, SCRAM-SHA-256"),
        (sasl("PLAIN", ""), "sasl.jaas.config is missing: PLAIN needs a login module"),
        (sasl("PLAIN", f"{SCRAM};"), "does not fit sasl.mechanism=PLAIN: want org.apache"),
        (sasl("SCRAM-SHA-256", PLAIN), "want org.apache.kafka.common.security.scram.Scram"),
        (sasl("PLAIN", PLAIN.replace("hush", "")), "the option password is missing"),
        (sasl("PLAIN", PLAIN.replace("username", "user")), "the option username is missing"),
        (sasl("PLAIN", PLAIN.replace("hush", r"hu\0sh")), "PLAIN takes no NUL characters"),
        (sasl("PLAIN", PLAIN, sasl_login_class="x.Y"), "sasl.login.class is not supported"),
        (
            sasl("PLAIN", PLAIN, sasl_login_callback_handler_class="x.Y"),
            "sasl.login.callback.handler.class is not supported with this mechanism",
        ),
    ],
)
def test_properties_that_cannot_work_are_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        security_settings(properties)
    assert words in str(raised.value)
    assert "hush" not in str(raised.value)
