"""DescribeClientQuotas: configured limits by entity (KIP-546)."""

from collections.abc import Mapping
from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode
from spindle.metadata.client_quotas import QuotaEntity
from spindle.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import may_use_cluster
from spindle.serving.services import BrokerServices

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
_ENTITY_TYPES: Final = ("user", "client-id", "ip")

Component = DescribeClientQuotasRequest.ComponentData
Entry = DescribeClientQuotasResponse.EntryData


def describe_client_quotas(
    services: BrokerServices, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Describe the entities that match all components, with `strict` exactly these components."""
    refusal = _refusal(request)
    if not may_use_cluster(services, context, Operation.DESCRIBE_CONFIGS):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    if refusal is not None:
        code, text = refusal
        return DescribeClientQuotasResponse(error_code=code, error_message=text, entries=None)
    entries = [
        _entry(entity, limits)
        for entity, limits in services.metadata.image.client_quotas.by_entity.items()
        if _matches(entity, request)
    ]
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _refusal(request: DescribeClientQuotasRequest) -> tuple[ErrorCode, str | None] | None:
    seen: list[str] = []
    for component in request.components:
        kind = component.entity_type
        if not kind:
            return ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type"
        if kind in seen:
            return ErrorCode.INVALID_REQUEST, f"Duplicate filter component entity type {kind}"
        if kind not in _ENTITY_TYPES:
            return ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported"
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            return ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}"
        if (component.match_type == EXACT) != (component.match is not None):
            return (
                ErrorCode.INVALID_REQUEST,
                f"Match of type {component.match_type} and text {component.match} do not agree",
            )
        seen.append(kind)
    if "ip" in seen and len(seen) > 1:
        return ErrorCode.INVALID_REQUEST, "Invalid entity filter component combination"
    return None


def _matches(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    parts = dict(entity)
    if request.strict and len(parts) != len(request.components):
        return False
    return all(_has(parts, component) for component in request.components)


def _has(parts: Mapping[str, str | None], component: Component) -> bool:
    if component.entity_type not in parts:
        return False
    name = parts[component.entity_type]
    if component.match_type == EXACT:
        return name == component.match
    return component.match_type == SPECIFIED or name is None


def _entry(entity: QuotaEntity, limits: Mapping[str, float]) -> Entry:
    return Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[Entry.ValueData(key=key, value=value) for key, value in limits.items()],
    )
