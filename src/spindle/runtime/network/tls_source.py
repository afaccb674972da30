"""The source of a listener's TLS: its keys in the configuration, and the files that they name."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from spindle.common.errors import ConfigError
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.listener_config import ListenerConfig
from spindle.config.node_config import NodeConfig
from spindle.security.stores import StoreStamp, store_stamp
from spindle.security.tls_context import ServerKey, check_accepted, server_key
from spindle.security.tls_settings import ServerTlsSettings, server_tls_settings

_CLIENT_AUTH = "ssl.client.auth"
_LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")


class TlsSource(NamedTuple):
    """The TLS keys of one listener, and the state of its files. Do not log it.

    Attributes:
        properties: the keys that begin with `ssl.`, without the prefix of the listener.
        is_between_brokers: brokers connect to each other here, as clients with the same keys.
        stamps: the stamps of the key store and the trust store.
    """

    listener: str
    properties: Mapping[str, str]
    is_between_brokers: bool
    stamps: tuple[StoreStamp, ...]

    def load(self) -> "LoadedTls":
        """Read the files.

        Raises:
            ConfigError: a value is missing or contradicts another one, or a store cannot be used.
        """
        try:
            settings = server_tls_settings(self.properties)
            key = server_key(settings)
            if self.is_between_brokers:
                check_accepted(key, settings.tls)
            return LoadedTls(self, settings, key)
        except ConfigError as error:
            raise ConfigError(f"listener {self.listener}: {error}") from None


class LoadedTls(NamedTuple):
    """A source whose files were read."""

    source: TlsSource
    settings: ServerTlsSettings
    key: ServerKey

    def check_follows(self, former: "LoadedTls") -> None:
        """Refuse a new certificate that clients or brokers may refuse.

        Raises:
            ConfigError: distinguished name or alternative names have changed, and the keys
                `ssl.allow.dn.changes` and `ssl.allow.san.changes` do not allow it; or brokers
                would refuse each other.
        """
        new, old = self.key.certificate, former.key.certificate
        listener = self.source.listener
        if new.subject.lower() != old.subject.lower() and not self.settings.allows_dn_changes:
            raise ConfigError(
                f"listener {listener}: the new certificate is for {new.subject}, the present one "
                f"for {old.subject}; set ssl.allow.dn.changes=true to allow that"
            )
        missing = old.alternative_names - new.alternative_names
        if missing and not self.settings.allows_san_changes:
            raise ConfigError(
                f"listener {listener}: the new certificate lacks {len(missing)} of the alternative "
                "names of the present one; set ssl.allow.san.changes=true to allow that"
            )
        if self.source.is_between_brokers:
            # Other brokers change their certificates earlier or later.
            check_accepted(self.key, former.settings.tls)
            check_accepted(former.key, self.settings.tls)

    def date_warning(self, now: datetime) -> str | None:
        """Return a sentence about a certificate that is not valid now; None if it is."""
        certificate = self.key.certificate
        about = f"listener {self.source.listener}: the certificate of {certificate.subject}"
        if now > certificate.not_after:
            return f"{about} has expired on {certificate.not_after.isoformat()}; clients refuse it"
        if now < certificate.not_before:
            return f"{about} is valid from {certificate.not_before.isoformat()} on only"
        return None


def tls_source(
    node: NodeConfig, listener: str, dynamic: Mapping[str, str] | None = None
) -> TlsSource:
    """Return the present source of a listener. It stats the files, but does not read them."""
    config = ListenerConfig(node, listener, dynamic)
    properties = {k: v for k, v in config.properties.items() if k.startswith("ssl.")}
    protocol = node.security_protocols.get(listener, SecurityProtocol.SSL)
    if protocol.has_sasl and _CLIENT_AUTH not in config.own:
        # As in Kafka: SASL identifies the client, so only the listener's own key counts.
        properties.pop(_CLIENT_AUTH, None)
    stamps = tuple(store_stamp(properties.get(key)) for key in _LOCATIONS)
    is_between_brokers = node.is_broker and listener == node.inter_broker_listener_name
    return TlsSource(listener, properties, is_between_brokers, stamps)
