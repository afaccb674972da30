"""Finds the quota of a client: the most specific one that is configured (KIP-55, KIP-546).

Quotas of addresses (KIP-612) are independent of those of users and client ids.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spindle.metadata.client_quotas import QuotaEntity

_KNOWN_CLIENTS: Final = 10_000
"""Maximum number of clients with cached limits, because clients can invent client ids."""


class QuotaLimit(NamedTuple):
    """A limit and the (user, client id) of the clients that share it; "" stands for all."""

    shared_by: tuple[str, str]
    limit: float


class QuotaLimits:
    """The limits of one quota key.

    Args:
        by_entity: all quotas of the image.
        key: the quota, such as `producer_byte_rate`.
    """

    def __init__(self, by_entity: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._limits = {
            (parts.get("user", ""), parts.get("client-id", "")): limits[key]
            for parts, limits in ((dict(entity), limits) for entity, limits in by_entity.items())
            if key in limits and "ip" not in parts
        }
        self._ip_limits = {
            parts["ip"]: limits[key]
            for parts, limits in ((dict(entity), limits) for entity, limits in by_entity.items())
            if key in limits and "ip" in parts
        }
        self._found: dict[tuple[str, str], QuotaLimit | None] = {}

    def __bool__(self) -> bool:
        return bool(self._limits) or bool(self._ip_limits)

    def of_address(self, address: str) -> QuotaLimit | None:
        """Return the limit of an address, or the default limit, which addresses do not share."""
        limit = self._ip_limits.get(address, self._ip_limits.get(None))
        return None if limit is None else QuotaLimit(("", address), limit)

    def of(self, user: str, client_id: str) -> QuotaLimit | None:
        """Return the limit of a client; None if there is none."""
        client = (user, client_id)
        try:
            return self._found[client]
        except KeyError:
            if len(self._found) >= _KNOWN_CLIENTS:
                self._found.clear()
            limit = self._found[client] = self._find(user, client_id)
            return limit

    def _find(self, user: str, client_id: str) -> QuotaLimit | None:
        """Search in Kafka's order of precedence; the name None is the default entity."""
        both, its_user, its_client_id = (user, client_id), (user, ""), ("", client_id)
        levels: tuple[tuple[tuple[str | None, str | None], tuple[str, str]], ...] = (
            ((user, client_id), both),
            ((user, None), both),
            ((user, ""), its_user),
            ((None, client_id), both),
            ((None, None), both),
            ((None, ""), its_user),
            (("", client_id), its_client_id),
            (("", None), its_client_id),
        )
        for entity, shared_by in levels:
            if entity in self._limits:
                return QuotaLimit(shared_by, self._limits[entity])
        return None
