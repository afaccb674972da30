"""Secrets that the node makes itself: salted passwords, keys of SCRAM, HMACs of tokens."""

from base64 import b64encode
from typing import Final

from spindle.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from spindle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spindle.security.scram import (
    SCRAM_MECHANISMS,
    ScramMechanism,
    client_first,
    client_first_bare,
    parse_server_first,
    salted_password,
    server_key,
    stored_key,
)
from spindle.security.secret import Secret
from verification.fuzz.secured.login_messages import WRONG_PASSWORD
from verification.fuzz.secured.port import SecuredPort
from verification.fuzz.secured.secret_texts import SecretTexts
from verification.fuzz.secured.users import STRANGER, FuzzUsers
from verification.fuzz.wire import RawConnection

_NONCE: Final = "fuzz"


async def add_scram_keys(port: SecuredPort, texts: SecretTexts) -> None:
    """Add the salted passwords and keys of all users; a challenge has the salt."""
    for mechanism in SCRAM_MECHANISMS.values():
        for user, password in port.users.passwords.items():
            client = await port.connect()
            challenge = await _challenge(client, mechanism, user)
            client.close()
            server = parse_server_first(challenge, _NONCE)
            salted = salted_password(mechanism, password.text, server.salt, server.iterations)
            name = f"of {user} for {mechanism.text}"
            texts.add(f"the salted password {name}", salted)
            texts.add(f"the stored key {name}", stored_key(mechanism, salted))
            texts.add(f"the server key {name}", server_key(mechanism, salted))


async def add_tokens(admin: RawConnection, texts: SecretTexts, *, of_stranger: bool) -> None:
    """Add the HMACs of delegation tokens: those of the stranger, or those of all others."""
    answer = await admin.ask(DescribeDelegationTokenRequest(owners=None))
    for token in answer.tokens:
        if (token.principal_name == STRANGER) == of_stranger:
            texts.add(f"the HMAC of a delegation token of {token.principal_name}", token.hmac)


async def find_tokens(admin: RawConnection, users: FuzzUsers) -> None:
    """Let attackers know the ids of all tokens, but the HMACs of the stranger's alone."""
    answer = await admin.ask(DescribeDelegationTokenRequest(owners=None))
    for token in answer.tokens:
        is_own = token.principal_name == STRANGER
        password = b64encode(token.hmac).decode() if is_own else WRONG_PASSWORD
        users.delegation_tokens[token.token_id] = Secret(password)


async def _challenge(client: RawConnection, mechanism: ScramMechanism, user: str) -> bytes:
    await client.ask(SaslHandshakeRequest(mechanism=mechanism.text))
    first = client_first(client_first_bare(user, _NONCE, is_token=False))
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=first))
    return bytes(answer.auth_bytes)
