"""The users of PLAIN on a listener; a change in the metadata applies at once."""

import logging
from collections.abc import Callable, Mapping

from spindle.common.errors import ConfigError
from spindle.config.listener_config import ListenerConfig
from spindle.config.node_config import NodeConfig
from spindle.config.sasl_settings import users_of_plain
from spindle.metadata.image import MetadataImage
from spindle.security.secret import Secret
from spindle.security.server.mechanism import ServerExchange
from spindle.security.server.plain import plain_server_exchange

log = logging.getLogger(__name__)


class PlainLogins:
    """Checks the clients of one listener.

    Args:
        users: those of the property file.
        image: returns the newest metadata of this node, with its dynamic values.
    """

    def __init__(
        self,
        config: NodeConfig,
        listener: str,
        users: Mapping[str, Secret],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._config = config
        self._listener = listener
        self._users = users
        self._image = image
        self._dynamic: Mapping[str, str] = {}

    def exchange(self) -> ServerExchange:
        """Check the user name and the password of a client."""
        dynamic = self._image().configs.dynamic_values(self._config.node_id)
        if dynamic != self._dynamic:
            self._dynamic = dynamic
            self._renew()
        return plain_server_exchange(self._users)

    def _renew(self) -> None:
        try:
            users = users_of_plain(ListenerConfig(self._config, self._listener, self._dynamic))
        except ConfigError as error:
            # A controller stores values that no broker has checked.
            log.error("the users of PLAIN stay as they are: %s", error)
            return
        if users != self._users:
            self._users = users
            log.info("listener %s: PLAIN has %d users now", self._listener, len(users))
