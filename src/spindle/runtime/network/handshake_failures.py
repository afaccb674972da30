"""The reason of a failed TLS handshake of a client, and what to check."""

import ssl

from spindle.client.security.tls_failures import (
    CERTIFICATE_REFUSED,
    NO_COMMON_GROUND,
    NOT_TLS,
)


def why_failed(error: Exception) -> str:
    """Return the reason of a failed handshake, for a sentence after the name of the client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted ({error.verify_message}): check it and "
            "ssl.truststore.*"
        )
    if not isinstance(error, ssl.SSLError):
        return str(error)
    reason = error.reason or str(error)
    if reason.endswith(NOT_TLS):
        return "it does not speak TLS: its security.protocol has to be SSL or SASL_SSL"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has no certificate, which ssl.client.auth=required demands"
    if reason.endswith(CERTIFICATE_REFUSED):
        return (
            f"it refuses the certificate of this listener ({reason}): it has to trust its CA, and "
            "the certificate has to be valid"
        )
    if reason.endswith(NO_COMMON_GROUND) or reason == "NO_SHARED_CIPHER":
        return (
            f"it has no TLS version or cipher suite in common with this listener ({reason}): "
            "check ssl.enabled.protocols and ssl.cipher.suites"
        )
    return f"its handshake is malformed ({reason})"
