"""SCRAM: the example of RFC 7677, and what a client accepts from a server."""

from base64 import b64decode, b64encode

import pytest

from spindle.security.scram import (
    ScramError,
    ScramMechanism,
    answer_challenge,
    check_server_final,
    client_final,
    client_first,
    client_first_bare,
    parse_server_first,
)

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_the_example_of_rfc_7677() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    bare = client_first_bare("user", NONCE, is_token=False)
    assert client_first(bare) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = answer_challenge(mechanism, "pencil", bare, NONCE, FIRST.encode())
    final = client_final(answer.without_proof, answer.proof)
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = answer.server_signature
    assert b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    check_server_final(b"v=" + b64encode(signature), signature)


def test_names_are_escaped_and_tokens_are_marked() -> None:
    assert client_first_bare("a=b,c", "n", is_token=True) == "n=a=3Db=2Cc,r=n,tokenauth=true"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (FIRST.replace(NONCE, "other"), "nonce does not extend"),
        (f"r={NONCE},s=AAAA,i=4096", "nonce does not extend"),
        (FIRST.replace("4096", "4095"), "asks for 4095 iterations"),
        (FIRST.replace("4096", "1000001"), "asks for 1000001 iterations"),
        (FIRST.replace("4096", "-1"), "malformed"),
        (FIRST.replace("4096", "٤096"), "malformed"),
        (FIRST.replace("==", "="), "not base64"),
        ("m=required," + FIRST, "malformed"),
        ("", "malformed"),
    ],
)
def test_a_first_message_that_breaks_a_rule_is_refused(message: str, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        parse_server_first(message.encode(), NONCE)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"v=" + b64encode(b"x" * 32), "impostor"),
        (b"e=invalid-proof", "refused the proof: 'invalid-proof'"),
        (b"v=", "malformed"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_last_message_without_the_right_signature_is_refused(message: bytes, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        check_server_final(message, b64decode("AAAA"))
