"""Settings that protect a Kafka cluster and that Spindle refuses, because it lacks the protection.

A key that merely changes nothing is not refused but warned about, see `node_warnings`.
"""

from typing import TYPE_CHECKING

from spindle.config.authorizer import authorizer_settings, early_start_listeners
from spindle.config.sasl_settings import check_sasl

if TYPE_CHECKING:
    from spindle.config.node_config import NodeConfig


def check_supported(config: "NodeConfig") -> None:
    """Refuse a node whose clients would rely on a mechanism or an authorizer that it lacks.

    Raises:
        ConfigError: a listener with SASL cannot be served, or the settings of the authorizer are
            wrong.
    """
    check_sasl(config)
    authorizer_settings(config)
    early_start_listeners(config)
