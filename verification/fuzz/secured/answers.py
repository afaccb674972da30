"""Judge the answers to an attacker: before a login, and to a user without a right."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.protocol.api import APIS, ApiKey, response_class
from spindle.protocol.codec import encode
from spindle.protocol.message import Message
from verification.fuzz.cases import Sent
from verification.fuzz.secured.fixtures import HIDDEN_TEXTS
from verification.fuzz.secured.secret_texts import SecretTexts
from verification.fuzz.wire import Finding

_BEFORE_LOGIN: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_BARE_MESSAGE: Final = re.compile(
    rb"|r=[\x21-\x2b\x2d-\x7e]+,s=[A-Za-z0-9+/=]+,i=\d+|v=[A-Za-z0-9+/=]+|\{\"status\".*\}",
    re.DOTALL,
)
"""A message of a mechanism without Kafka's headers, as SaslHandshake version 0 wants them."""
_WITHOUT_RIGHT: Final = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    )
)
"""APIs that every user may use, each for itself; a snapshot has all that they may change."""
_EMPTY_LISTS: Final = (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS)
"""APIs that leave out what their user may not see."""
_OPEN_LISTS: Final = ("brokers", "node_endpoints")
"""The addresses of the brokers, which every user may know."""


class AnswerJudge:
    """Judges the answers of one run.

    Args:
        secret_texts: the secrets; the HMACs of the attackers' own tokens are not among them.
        hidden: further texts that no request contains, and so no answer may contain.
    """

    def __init__(self, secret_texts: SecretTexts, hidden: Iterable[bytes]) -> None:
        self._secret_texts = secret_texts
        self._hidden = (*(text.encode() for text in HIDDEN_TEXTS), *hidden)

    def check_frame(self, frame: bytes) -> None:
        """Check any bytes that came from the node.

        Raises:
            Finding: they contain a secret, or the name of a thing that no request has named.
        """
        self._secret_texts.check_text(f"an answer ({frame[:200]!r})", frame)
        for text in self._hidden:
            if text in frame:
                raise Finding(f"an answer shows {text!r}: {frame[:200]!r}")

    def check_before_login(self, sent: Sent, response: Any) -> None:
        """Check an answer to a connection that has not logged in.

        Raises:
            Finding: it is of an API that needs a login, and says more than that.
        """
        if sent.api_key in _BEFORE_LOGIN:
            return
        refusal: Any = response_class(sent.api_key)()
        has_error = "error_code" in _error_fields(type(refusal), sent.version)
        if has_error:
            refusal.error_code = ErrorCode.ILLEGAL_SASL_STATE
        if hasattr(refusal, "error_message"):
            refusal.error_message = response.error_message
        if not has_error or encode(response, sent.version) != encode(refusal, sent.version):
            raise Finding(f"{_named(sent)} was answered before a login: {response!r}")

    def check_bare_message(self, message: bytes) -> None:
        """Check a message of a mechanism that came without headers.

        Raises:
            Finding: it is no message that a mechanism's server sends.
        """
        if not _BARE_MESSAGE.fullmatch(message):
            raise Finding(f"no message of a mechanism: {message[:200]!r}")

    def check_refused(self, sent: Sent, response: Any) -> None:
        """Check an answer to the stranger.

        Raises:
            Finding: something was shown or done.
        """
        if sent.api_key not in _WITHOUT_RIGHT and (shown := _shown(sent, response)):
            raise Finding(f"{_named(sent)} as the stranger gave {shown} in {response!r}"[:3000])


def _named(sent: Sent) -> str:
    return f"{APIS[sent.api_key].name} v{sent.version}"


def _shown(sent: Sent, response: Message) -> str:
    """Return the part of a response that shows or did something, as text; empty for none."""
    if _error_of(response, sent.version):
        return ""
    is_whole = not _has_error_below(type(response), sent.version)
    if is_whole and sent.api_key not in _EMPTY_LISTS:
        return "success"
    return _shown_below(response, sent.version)


def _shown_below(message: Message, version: int) -> str:
    for name, part in _elements(message):
        if _error_of(part, version):
            continue
        kind = type(part)
        if _has_own_error(kind, version) or not _has_error_below(kind, version):
            return f"{name} {part!r}"
        if shown := _shown_below(part, version):
            return shown
    return ""


def _elements(message: Message) -> Iterator[tuple[str, Message]]:
    """Yield the elements of a message's lists, with the names of the lists."""
    for field in message.FIELDS:
        if field.is_array and not isinstance(field.type, str) and field.name not in _OPEN_LISTS:
            for part in getattr(message, field.name) or ():
                yield field.name, part


def _error_of(message: Message, version: int) -> int:
    codes = (getattr(message, name) for name in _error_fields(type(message), version))
    return next((code for code in codes if code), 0)


def _error_fields(kind: type[Message], version: int) -> list[str]:
    return [
        field.name
        for field in kind.FIELDS
        if field.name.endswith("error_code") and field.first <= version <= field.last
    ]


def _has_own_error(kind: type[Message], version: int) -> bool:
    return bool(_error_fields(kind, version))


def _has_error_below(kind: type[Message], version: int) -> bool:
    """Return whether elements of a message's lists have errors of their own in a version."""
    return any(
        _has_own_error(field.type, version) or _has_error_below(field.type, version)
        for field in kind.FIELDS
        if not isinstance(field.type, str) and field.first <= version <= field.last
    )
