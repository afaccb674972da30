"""The mechanisms of a listener: its settings together with the credentials in the metadata."""

from collections.abc import Callable
from functools import partial

from spindle.common.ids import Endpoint
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.listener_config import ListenerConfig
from spindle.config.node_config import NodeConfig
from spindle.config.sasl_settings import PLAIN, SaslSettings, sasl_settings
from spindle.metadata.image import MetadataImage
from spindle.metadata.security import ScramUser
from spindle.runtime.network.sasl_state import SaslRules
from spindle.security.scram import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from spindle.security.server.mechanism import SaslMechanism
from spindle.security.server.plain import plain_server_exchange
from spindle.security.server.scram import ScramServer


def sasl_rules(
    config: NodeConfig,
    endpoint: Endpoint,
    image: Callable[[], MetadataImage],
    now_ms: Callable[[], int],
) -> SaslRules | None:
    """Return how a listener authenticates, None if it has no SASL.

    Args:
        config: the configuration of the node, whose listeners were checked.
        endpoint: Of the listener.
        image: returns the newest metadata of this node.
        now_ms: Unix time.
    """
    if not SecurityProtocol(endpoint.security_protocol).has_sasl:
        return None
    settings = sasl_settings(ListenerConfig(config, endpoint.listener))
    return SaslRules(
        mechanisms={name: _mechanism(name, settings, image) for name in settings.mechanisms},
        max_reauth_ms=settings.max_reauth_ms,
        max_receive_bytes=settings.max_receive_bytes,
        failure_delay_s=settings.failure_delay_ms / 1000,
        now_ms=now_ms,
    )


def _mechanism(
    name: str, settings: SaslSettings, image: Callable[[], MetadataImage]
) -> SaslMechanism:
    if name == PLAIN:
        return partial(plain_server_exchange, settings.plain_users)
    scram = SCRAM_MECHANISMS[name]
    return ScramServer(scram, partial(_credential, image, scram)).exchange


def _credential(
    image: Callable[[], MetadataImage], mechanism: ScramMechanism, user: str
) -> ScramCredential | None:
    return image().security.scram.get(ScramUser(user, mechanism))
