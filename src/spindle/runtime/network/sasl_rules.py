"""The SASL mechanisms of a listener, from its settings and the credentials in the metadata."""

import logging
from collections.abc import Callable
from functools import partial

from spindle.common.ids import Endpoint
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.listener_config import ListenerConfig
from spindle.config.node_config import NodeConfig
from spindle.config.oauthbearer_settings import SignedTokens
from spindle.config.sasl_settings import SaslSettings, sasl_settings
from spindle.metadata.image import MetadataImage
from spindle.metadata.security import ScramUser
from spindle.runtime.network.jwks_cache import KeySets
from spindle.runtime.network.plain_logins import PlainLogins
from spindle.runtime.network.sasl_state import SaslRules
from spindle.runtime.network.token_logins import TokenLogins
from spindle.runtime.network.unauthenticated import UnauthenticatedConnections
from spindle.security.mechanism_names import OAUTHBEARER, PLAIN
from spindle.security.scram import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from spindle.security.server.fake_credentials import InventedCredentials
from spindle.security.server.mechanism import SaslMechanism
from spindle.security.server.oauthbearer import ValidateToken, oauthbearer_exchange
from spindle.security.server.scram import ScramServer, TokenOf
from spindle.security.server.token_claims import bearer_token
from spindle.security.server.unsecured_tokens import unsecured_token

log = logging.getLogger(__name__)


def sasl_rules(
    config: NodeConfig,
    endpoint: Endpoint,
    image: Callable[[], MetadataImage],
    now_ms: Callable[[], int],
    key_sets: KeySets,
    unauthenticated: UnauthenticatedConnections,
) -> SaslRules | None:
    """Return the SASL rules of a listener, None if it has no SASL.

    Args:
        config: the configuration of the node, whose listeners were checked.
        endpoint: the listener's address.
        image: returns the newest metadata of this node.
        now_ms: Unix time.
        key_sets: the key sets of the node; the listener adds its own.
        unauthenticated: the node's connections without a login.
    """
    if not SecurityProtocol(endpoint.security_protocol).has_sasl:
        return None
    settings = sasl_settings(ListenerConfig(config, endpoint.listener))
    mechanisms: dict[str, SaslMechanism] = {}
    for name in settings.mechanisms:
        if name == PLAIN:
            mechanisms[name] = PlainLogins(
                config, endpoint.listener, settings.plain_users, image
            ).exchange
        elif name == OAUTHBEARER:
            validate = _validation(endpoint.listener, settings, now_ms, key_sets)
            mechanisms[name] = partial(oauthbearer_exchange, validate)
        else:
            scram = SCRAM_MECHANISMS[name]
            token_of = _tokens(config, scram, image, now_ms)
            credential_of = partial(_credential, image, scram)
            invented = InventedCredentials(
                scram, lambda: image().security.scram, config.delegation_token_secret
            )
            mechanisms[name] = ScramServer(
                scram, credential_of, token_of, invented.credential
            ).exchange
    return SaslRules(
        mechanisms=mechanisms,
        max_reauth_ms=settings.max_reauth_ms,
        max_receive_bytes=settings.max_receive_bytes,
        failure_delay_s=settings.failure_delay_ms / 1000,
        now_ms=now_ms,
        unauthenticated=unauthenticated,
    )


def _validation(
    listener: str, settings: SaslSettings, now_ms: Callable[[], int], key_sets: KeySets
) -> ValidateToken:
    """Return the function that checks tokens of OAUTHBEARER."""
    tokens = settings.tokens
    if isinstance(tokens, SignedTokens):
        keys, rules = key_sets.of(tokens.keys), tokens.rules
        return lambda token: bearer_token(keys.claims(token), rules, now_ms())
    assert tokens is not None
    log.warning(
        "listener %s accepts tokens without a signature, as its callback handler says: anyone who "
        "reaches it can be every user",
        listener,
    )
    unsecured = tokens
    return lambda token: unsecured_token(token, unsecured, now_ms())


def _tokens(
    config: NodeConfig,
    mechanism: ScramMechanism,
    image: Callable[[], MetadataImage],
    now_ms: Callable[[], int],
) -> TokenOf:
    """Return the function that looks up delegation tokens (KIP-48)."""
    secret = config.delegation_token_secret
    if secret is None:
        return lambda token_id: None
    return TokenLogins(secret, mechanism, image, now_ms).credential


def _credential(
    image: Callable[[], MetadataImage], mechanism: ScramMechanism, user: str
) -> ScramCredential | None:
    return image().security.scram.get(ScramUser(user, mechanism))
