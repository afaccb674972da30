"""The choice of the newest common version within the bounds of the caller."""

import pytest

from spindle.client.errors import UnsupportedByPeer
from spindle.client.versions import ApiVersionRange, PeerVersions
from spindle.protocol.messages.api_versions import ApiVersionsResponse
from spindle.protocol.messages.fetch import FetchRequest


def peer(first: int, last: int) -> PeerVersions:
    return PeerVersions({FetchRequest.API_KEY: ApiVersionRange(first, last)})


@pytest.mark.parametrize(
    ("first", "last", "bound", "picked"),
    [
        (0, 11, None, 11),
        (4, 99, None, FetchRequest.LAST_VERSION),
        (4, 18, 12, 12),
        (4, 4, 12, 4),
    ],
)
def test_the_newest_common_version(first: int, last: int, bound: int | None, picked: int) -> None:
    assert peer(first, last).pick(FetchRequest, last=bound) == picked


def test_a_broker_that_is_too_old() -> None:
    with pytest.raises(UnsupportedByPeer, match=r"Fetch in versions 0 to 3.*needs 4 to"):
        peer(0, 3).pick(FetchRequest)


def test_a_broker_that_is_too_new() -> None:
    with pytest.raises(UnsupportedByPeer, match="versions 90 to 99"):
        peer(90, 99).pick(FetchRequest)


def test_a_question_that_old_versions_cannot_express() -> None:
    with pytest.raises(UnsupportedByPeer, match="needs 13 to"):
        peer(4, 12).pick(FetchRequest, first=13)


def test_an_api_that_is_not_served() -> None:
    with pytest.raises(UnsupportedByPeer, match=r"does not serve Fetch \(API key 1\)"):
        PeerVersions({}).pick(FetchRequest)


def test_the_table_of_an_answer() -> None:
    answer = ApiVersionsResponse(
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=1, min_version=4, max_version=9)],
        finalized_features_epoch=7,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name="metadata.version", max_version_level=30)
        ],
    )
    versions = PeerVersions.of(answer)
    assert versions.served(1) == ApiVersionRange(4, 9)
    assert versions.served(2) is None
    assert versions.finalized_features == {"metadata.version": 30}
    assert versions.finalized_features_epoch == 7
