"""ApiVersions: the APIs of a listener, and feature levels (KIP-35, KIP-511, KIP-584, KIP-1242)."""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from spindle.common.errors import ErrorCode
from spindle.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from spindle.metadata.image import MetadataImage
from spindle.protocol import versions
from spindle.protocol.api import API_VERSIONS, APIS, PRODUCE
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.sentinels import NO_NODE
from spindle.serving.context import RequestContext

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class AnsweringBroker(NamedTuple):
    """The broker that clients of a listener reach."""

    cluster_id: str
    node_id: int


def answer_of_listener(
    keys: Iterable[int],
    image: Callable[[], MetadataImage],
    kraft_version: Callable[[], int],
    broker: AnsweringBroker | None = None,
) -> Callable[[RequestContext, ApiVersionsRequest], ApiVersionsResponse]:
    """Make the handler for a listener that serves these APIs, and ApiVersions itself.

    Args:
        image: gives the newest committed image, for the finalized features.
        kraft_version: gives the level of kraft.version, which the quorum alone knows.
        broker: a client that asks for another one has to bootstrap again (KIP-1242). None for a
            controller, which answers every client.
    """
    rows = _rows((*keys, API_VERSIONS))

    def answer(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if not _is_valid(request, context.api_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if broker is not None and _expects_another(request, broker):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return _answer(context, rows, image(), kraft_version())

    return answer


def _is_valid(request: ApiVersionsRequest, version: int) -> bool:
    """Return True if the client names its software, and cluster and node both or neither.

    Fields that the version does not have are null or -1.
    """
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return False
    return version < versions.API_VERSIONS_CLIENT_SOFTWARE or bool(
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    )


def _expects_another(request: ApiVersionsRequest, broker: AnsweringBroker) -> bool:
    """Return True for a client that expects another broker; without a cluster id it expects any."""
    return request.cluster_id is not None and broker != (request.cluster_id, request.node_id)


def _rows(keys: Iterable[int]) -> list[ApiVersionsResponse.ApiVersion]:
    """Return the version ranges of Kafka's APIs; Spindle's own are not advertised.

    Produce is advertised from version 0, although 0 to 2 are refused: released librdkafka takes a
    range without them for a broker that cannot handle compression (KAFKA-18659).
    """
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=key,
            min_version=0 if key == PRODUCE else APIS[key].first_version,
            max_version=APIS[key].last_version,
        )
        for key in sorted(keys)
        if not APIS[key].is_private
    ]


def _answer(
    context: RequestContext,
    rows: list[ApiVersionsResponse.ApiVersion],
    image: MetadataImage,
    kraft_version: int,
) -> ApiVersionsResponse:
    """Answer a valid request. As in Kafka, a feature at level 0 is not listed."""
    # Clients before version 4 cannot parse a feature whose minimum is 0 (KAFKA-17011).
    show_all = context.api_version >= versions.API_VERSIONS_MIN_ZERO_FEATURES
    finalized = dict(image.features.levels)
    if kraft_version:
        finalized[KRAFT_VERSION] = kraft_version
    return ApiVersionsResponse(
        api_keys=rows,
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name=name, min_version=versions.minimum, max_version=versions.maximum
            )
            for name, versions in SUPPORTED_FEATURES.items()
            if show_all or versions.minimum > 0
        ],
        finalized_features_epoch=image.provenance.last_offset,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in finalized.items()
        ],
    )
