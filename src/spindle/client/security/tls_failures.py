"""Texts about failures of TLS: the peer, the property, and the remedy."""

import ssl
from typing import Final

from spindle.security.tls_context import WEAK_DIGEST, WEAK_KEY

_SELF_SIGNED: Final = (18, 19)
_UNKNOWN_ISSUER: Final = (2, 20, 21)
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_KEY_TOO_SMALL: Final = (66, 67)
_DIGEST_TOO_WEAK: Final = 68
_OTHER_NAME: Final = (62, 64)
"""Verification results of OpenSSL (X509_V_ERR_*)."""
NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "HTTPS_PROXY")
NO_COMMON_GROUND: Final = (
    "ALERT_PROTOCOL_VERSION",
    "ALERT_HANDSHAKE_FAILURE",
    "ALERT_INSUFFICIENT_SECURITY",
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "NO_CIPHERS_AVAILABLE",
)
CERTIFICATE_REFUSED: Final = (
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNKNOWN_CA",
    "ALERT_ACCESS_DENIED",
    "ALERT_DECRYPT_ERROR",
)


def handshake_failure(error: ssl.SSLError, peer: str) -> str:
    """Return the reason of a failed handshake, to be shown to people.

    Args:
        peer: the address, the first word of the sentence.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{peer}: {_untrusted(error)}"
    reason = error.reason or str(error)
    if reason.endswith(NOT_TLS):
        return (
            f"{peer} does not speak TLS: security.protocol has to be PLAINTEXT or SASL_PLAINTEXT, "
            "or the port is that of another listener"
        )
    if reason.endswith(NO_COMMON_GROUND):
        return (
            f"{peer} has no TLS version or cipher suite in common with this client, or wants a "
            f"client certificate ({reason}): check ssl.enabled.protocols, ssl.cipher.suites and "
            "ssl.keystore.*"
        )
    return alert(error, peer) or f"{peer}: the TLS handshake failed ({reason})"


def alert(error: ssl.SSLError, peer: str) -> str | None:
    """Return the text about an alert that refuses this side's certificate; None for other errors.

    With TLS 1.3 a client learns only after the handshake that its certificate is refused.
    """
    reason = error.reason or ""
    if not reason.endswith(CERTIFICATE_REFUSED):
        return None
    if reason.endswith("ALERT_CERTIFICATE_REQUIRED"):
        return f"{peer} wants a client certificate: set ssl.keystore.location or ssl.keystore.key"
    return (
        f"{peer} refuses the certificate of this client, or its absence ({reason}): check that "
        "ssl.keystore.* has a valid certificate whose CA the broker trusts"
    )


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    code, text = error.verify_code, error.verify_message
    if code in _OTHER_NAME:
        return (
            f"its certificate is for another host ({text}): connect by a name in the certificate "
            "(brokers: advertised.listeners), or set ssl.endpoint.identification.algorithm to "
            "nothing, which leaves the host unchecked"
        )
    if code in _KEY_TOO_SMALL:
        return f"its certificate is not accepted ({text}): {WEAK_KEY}"
    if code == _DIGEST_TOO_WEAK:
        return f"its certificate is not accepted ({text}): {WEAK_DIGEST}"
    if code == _EXPIRED:
        return "its certificate, or that of its CA, has expired: renew it"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet: check it and the clock of this machine"
    if code in (*_SELF_SIGNED, *_UNKNOWN_ISSUER):
        return (
            f"its certificate is not trusted ({text}): put the certificate of its CA into "
            "ssl.truststore.location or ssl.truststore.certificates"
        )
    return f"its certificate is not accepted ({text}): check it and ssl.truststore.*"
