"""SASL requests on connections that are not authenticating.

A connection that is authenticating is handled in `runtime.network.sasl_state`. These responses are
for listeners without SASL, and for sessions that need not be renewed.
"""

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from spindle.serving.context import RequestContext


def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse to begin an authentication."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(
    context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Refuse a message of a mechanism."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
