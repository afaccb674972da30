"""Ask a token endpoint for a token with client credentials (RFC 6749, section 4.4)."""

from base64 import b64encode
from urllib.parse import quote, urlencode

from spindle.client.security.token_settings import TokenEndpoint
from spindle.security.http_client import exchange


def post(endpoint: TokenEndpoint) -> tuple[int, bytes]:
    """Send the client credentials; return status and body of the answer.

    Raises:
        TimeoutError: the answer was not complete in time.
        OSError, http.client.HTTPException: the endpoint cannot be reached, or does not speak HTTP.
    """
    form = {"grant_type": "client_credentials"}
    if endpoint.scope:
        form["scope"] = endpoint.scope
    return exchange(
        "POST",
        endpoint.url,
        timeout_ms=endpoint.timeout_ms,
        tls=endpoint.tls,
        headers={
            "Authorization": f"Basic {_basic(endpoint)}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
        body=urlencode(form),
    )


def _basic(endpoint: TokenEndpoint) -> str:
    pair = (endpoint.client_id, endpoint.client_secret.text)
    if endpoint.is_header_url_encoded:
        pair = (quote(pair[0], safe=""), quote(pair[1], safe=""))
    return b64encode(":".join(pair).encode()).decode()
