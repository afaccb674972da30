"""The choice of an API version: the newest that both sides know (KIP-35)."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from spindle.client.errors import UnsupportedByPeer
from spindle.protocol.api import FIRST_PRIVATE_KEY
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsResponse


class ApiVersionRange(NamedTuple):
    """Versions of one API, both ends included."""

    first: int
    last: int


class PeerVersions:
    """The API versions and features that a peer reported."""

    __slots__ = ("_ranges", "finalized_features", "finalized_features_epoch")

    def __init__(
        self,
        ranges: Mapping[int, ApiVersionRange],
        finalized_features: Mapping[str, int] | None = None,
        finalized_features_epoch: int = -1,
    ) -> None:
        self._ranges = dict(ranges)
        self.finalized_features = dict(finalized_features or {})
        self.finalized_features_epoch = finalized_features_epoch

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> Self:
        """Return the table in an answer without an error."""
        return cls(
            {k.api_key: ApiVersionRange(k.min_version, k.max_version) for k in response.api_keys},
            {f.name: f.max_version_level for f in response.finalized_features},
            response.finalized_features_epoch,
        )

    def served(self, api_key: int) -> ApiVersionRange | None:
        """Return the versions of an API that the peer serves, None if it does not serve the API."""
        return self._ranges.get(api_key)

    def pick(self, request: type[Message], *, first: int = 0, last: int | None = None) -> int:
        """Return the newest version of a request that both sides know.

        Peers do not advertise Spindle's own APIs: of these it is the newest version known here, and
        a peer that does not know the API closes the connection.

        Args:
            first: The oldest version that can express the request.
            last: The newest version whose fields the caller fills; None for the newest known.

        Raises:
            UnsupportedByPeer: there is no common version.
        """
        ours_first = max(first, request.FIRST_VERSION)
        ours_last = request.LAST_VERSION if last is None else min(last, request.LAST_VERSION)
        if request.API_KEY >= FIRST_PRIVATE_KEY:
            return ours_last
        theirs = self._ranges.get(request.API_KEY)
        name = request.__name__.removesuffix("Request")
        if theirs is None:
            raise UnsupportedByPeer(f"the broker does not serve {name} (API key {request.API_KEY})")
        version = min(ours_last, theirs.last)
        if version < max(ours_first, theirs.first):
            raise UnsupportedByPeer(
                f"the broker serves {name} in versions {theirs.first} to {theirs.last}, "
                f"this request needs {ours_first} to {ours_last}"
            )
        return version
