"""A scripted broker with TLS and SASL, on real sockets."""

import socket
import ssl
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from certificates import Certified
from wire_broker import WireBroker

from spindle.common.errors import ErrorCode
from spindle.protocol.message import Message
from spindle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from spindle.security.scram import (
    ScramMechanism,
    client_proof,
    salted_password,
    server_key,
    server_signature,
)

USER, PASSWORD = "alice", "correct horse"
_SALT = b"0123456789abcdef"


def server_context(own: Certified, *, wants_client: bool = False) -> ssl.SSLContext:
    """Return the context of a TLS server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(own.key_store_pem().encode())
        file.flush()
        context.load_cert_chain(file.name)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=own.authority_pem)
    return context


class SecuredBroker(WireBroker):
    """A broker that knows one user, for one connection at a time.

    Args:
        tls: The context of its listener; None for none.
        session_lifetime_ms: The lifetime that it tells clients after a login; 0 for no end.
        edit: Changes the messages of the mechanism before they are sent.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        mechanisms: tuple[str, ...] = (),
        session_lifetime_ms: int = 0,
        iterations: int = 4096,
        edit: Callable[[bytes], bytes] = bytes,
        last_versions: dict[type[Message], int] | None = None,
    ) -> None:
        super().__init__(last_versions=last_versions)
        self._tls = tls
        self._mechanisms = mechanisms
        self._session_lifetime_ms = session_lifetime_ms
        self._iterations = iterations
        self._edit = edit
        self._mechanism = ""
        self._said: list[str] = []
        self.logins = 0

    def secured(self, connection: socket.socket) -> socket.socket:
        if self._tls is None:
            return connection
        return self._tls.wrap_socket(connection, server_side=True)

    def handle(self, request: Any) -> Message:
        match request:
            case SaslHandshakeRequest():
                return self._handshake(request)
            case SaslAuthenticateRequest():
                return self._authenticate(bytes(request.auth_bytes))
        return super().handle(request)

    def _handshake(self, request: SaslHandshakeRequest) -> Message:
        self._mechanism, self._said = request.mechanism, []
        code = ErrorCode.NONE
        if not self._mechanisms:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif request.mechanism not in self._mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=list(self._mechanisms))

    def _authenticate(self, message: bytes) -> Message:
        self._said.append(message.decode())
        if self._mechanism.startswith("SCRAM"):
            answer, is_done = self._scram()
        elif self._mechanism == "PLAIN":
            answer, is_done = (b"", True) if self._is_user(message) else (None, True)
        else:
            answer, is_done = self._token(message)
        if answer is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="go\naway"
            )
        self.logins += is_done
        return SaslAuthenticateResponse(
            auth_bytes=self._edit(answer),
            session_lifetime_ms=self._session_lifetime_ms if is_done else 0,
        )

    def _is_user(self, message: bytes) -> bool:
        return message == f"\0{USER}\0{PASSWORD}".encode()

    def _token(self, message: bytes) -> tuple[bytes | None, bool]:
        if message == b"\x01":
            return None, True
        is_good = b"\x01auth=Bearer good.token" in message
        return (b"", True) if is_good else (b'{"status":"invalid_token"}', False)

    def _scram(self) -> tuple[bytes | None, bool]:
        mechanism = ScramMechanism[self._mechanism.replace("-", "_")]
        bare = self._said[0].removeprefix("n,,")
        nonce = bare.split(",r=")[1].split(",")[0] + "server"
        salt = b64encode(_SALT).decode()
        first = f"r={nonce},s={salt},i={self._iterations}"
        if len(self._said) == 1:
            return first.encode(), False
        without_proof, proof = self._said[1].split(",p=")
        auth_message = f"{bare},{first},{without_proof}"
        salted = salted_password(mechanism, PASSWORD, _SALT, self._iterations)
        is_user = bare.startswith(f"n={USER},")
        if not is_user or b64decode(proof) != client_proof(mechanism, salted, auth_message):
            return None, True
        signature = server_signature(mechanism, server_key(mechanism, salted), auth_message)
        return b"v=" + b64encode(signature), True
