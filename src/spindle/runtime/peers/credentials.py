"""The credentials of a node for other nodes, from its configuration and the files that it names.

Changed files, and dynamic values of `ssl.*`, apply to the next connection. Keys of SASL are read at
the start.
"""

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final, NamedTuple

from spindle.client.security.login_source import LoginSource
from spindle.client.security.settings import SecuritySettings, security_settings
from spindle.common.errors import ConfigError
from spindle.config.listener_config import ListenerConfig, listener_prefix
from spindle.config.mechanism_config import MechanismConfig
from spindle.config.node_config import NodeConfig
from spindle.runtime.detached_threads import StoreReads
from spindle.runtime.peers.security import Credentials
from spindle.security.mechanism_names import MECHANISMS
from spindle.security.stores import StoreStamp, store_stamp
from spindle.security.tls_context import client_context

log = logging.getLogger(__name__)

_JAAS: Final = "sasl.jaas.config"
_OF_MECHANISM: Final = (_JAAS, "sasl.login.callback.handler.class", "sasl.login.class")
"""Keys that need the names of a listener and a mechanism as a prefix."""


class _Source(NamedTuple):
    """Settings, with the stamps of the stores that they name."""

    settings: SecuritySettings
    stamps: tuple[StoreStamp, ...]

    def load(self) -> Credentials:
        tls, login = self.settings.tls, self.settings.login
        return Credentials(
            client_context(tls) if tls is not None else None,
            LoginSource(login) if login is not None else None,
        )


class PeerCredentials:
    """The credentials for one listener of other nodes.

    Args:
        mechanism_key: names the SASL mechanism.
        dynamic: returns the dynamic values of this node.

    Raises:
        ConfigError: a key is missing, has no usable value or contradicts another one, or a store
            cannot be used.
    """

    def __init__(
        self,
        config: NodeConfig,
        listener: str,
        mechanism_key: str,
        dynamic: Callable[[], Mapping[str, str]],
    ) -> None:
        self._config = config
        self._listener = listener
        self._mechanism_key = mechanism_key
        self._dynamic = dynamic
        self._turn = Lock()
        self._refusal = ""
        self._reads = StoreReads("its key store and trust store")
        self._source, self._loaded = self._read(None)

    def present(self) -> Credentials:
        """Return the current credentials; the previous ones if changed ones cannot be used."""
        with self._turn:
            try:
                self._source, self._loaded = self._read((self._source, self._loaded))
            except ConfigError as error:
                if str(error) != self._refusal:
                    self._refusal = str(error)
                    log.error(
                        "the changed credentials are not used, the previous ones stay: %s", error
                    )
            else:
                self._refusal = ""
            return self._loaded

    def _read(self, present: tuple[_Source, Credentials] | None) -> tuple[_Source, Credentials]:
        """Return the source and its credentials; the present ones if nothing has changed."""
        try:
            source = self._reads.read_blocking(self._find)
            if present is not None and present[0] == source:
                return present
            return source, self._reads.read_blocking(source.load)
        except ConfigError as error:
            raise ConfigError(
                f"connections of this node to listener {self._listener} of other nodes: {error} "
                f"(keys for this listener alone begin with {listener_prefix(self._listener)})"
            ) from None

    def _find(self) -> _Source:
        """Return the present configuration and the stamps of the files, without reading these."""
        protocol = self._config.security_protocols[self._listener]
        at_start = ListenerConfig(self._config, self._listener)
        now = ListenerConfig(self._config, self._listener, self._dynamic())
        properties = {
            **(_login(at_start, self._mechanism_key) if protocol.has_sasl else {}),
            **{key: text for key, text in now.properties.items() if key.startswith("ssl.")},
            "security.protocol": protocol.name,
        }
        settings = security_settings(properties)
        tls = settings.tls
        stores = (tls.own, tls.trust) if tls is not None else ()
        return _Source(settings, tuple(store_stamp(store.location) for store in stores if store))


def _login(listener: ListenerConfig, mechanism_key: str) -> dict[str, str]:
    """Return the client settings for a login at this listener."""
    mechanism = listener.text(mechanism_key)
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ConfigError(f"{mechanism_key} is {mechanism}, want one of {known}")
    of_mechanism = MechanismConfig(listener, mechanism)
    own = {key: text for key, text in of_mechanism.own.items() if text}
    if _JAAS not in own:
        raise ConfigError(
            f"{of_mechanism.own_key_name(_JAAS)} is missing: it has the login module with which "
            f"this node logs in by {mechanism}"
        )
    shared = {k: v for k, v in listener.properties.items() if k not in _OF_MECHANISM}
    return {**shared, **own, "sasl.mechanism": mechanism}
