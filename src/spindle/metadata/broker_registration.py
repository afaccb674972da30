"""Listeners and supported features of a node, as requests and records carry them.

Each message has row classes of its own, which differ in nothing but their names.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from spindle.common.ids import Endpoint
from spindle.metadata.features import VersionRange

Row = TypeVar("Row")


class ListenerRow(Protocol):
    """One listener of a node."""

    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRow(Protocol):
    """The levels of one feature that a node supports."""

    name: str
    min_supported_version: int
    max_supported_version: int


def listener_rows(row: Callable[..., Row], endpoints: Iterable[Endpoint]) -> list[Row]:
    """Return the listeners of a registration as rows of a record or request."""
    return [
        row(name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol)
        for e in endpoints
    ]


def listener_endpoints(rows: Iterable[ListenerRow]) -> tuple[Endpoint, ...]:
    """Return the endpoints in the listener rows of a registration."""
    return tuple(Endpoint(r.name, r.host, r.port, r.security_protocol) for r in rows)


def feature_rows(row: Callable[..., Row], features: Mapping[str, VersionRange]) -> list[Row]:
    """Return the supported feature levels of a registration as rows of a record or request."""
    return [
        row(
            name=name,
            min_supported_version=levels.minimum,
            max_supported_version=levels.maximum,
        )
        for name, levels in features.items()
    ]


def features_of(rows: Iterable[FeatureRow]) -> dict[str, VersionRange]:
    """Return the supported levels by feature name, from the feature rows of a registration."""
    return {r.name: VersionRange(r.min_supported_version, r.max_supported_version) for r in rows}
