"""AlterClientQuotas (KIP-546, KIP-612)."""

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from math import isfinite
from typing import Final, NamedTuple

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.decision import Decision, OperationContext, repeated
from spindle.metadata.client_quotas import QuotaEntity, quota_entity
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from spindle.protocol.messages.metadata_records import ClientQuotaRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class _Whole(NamedTuple):
    """A limit that is a whole number of a Java type."""

    kind: str
    maximum: float


_LONG: Final = _Whole("a LONG", 2.0**63)
_INT: Final = _Whole("an INT", 2.0**31 - 1)
_HOST_NAME: Final = re.compile(
    r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,62}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,62}[a-zA-Z0-9])?)*"
)
"""The form of a host name. It is resolved before the decision."""
_MAX_HOST_NAME_LENGTH: Final = 253
_WHOLE_WITHIN: Final = 1e-6

_Keys = Mapping[str, _Whole | None]
_CLIENT_KEYS: Final[_Keys] = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""Keys of users and client ids; None where fractions make sense."""
_IP_KEYS: Final[_Keys] = {"connection_creation_rate": _INT}

_Entry = AlterClientQuotasRequest.EntryData


def host_names(request: AlterClientQuotasRequest) -> list[str]:
    """Return the distinct ip entities that are host names instead of addresses."""
    names = [
        part.entity_name
        for entry in request.entries
        for part in entry.entity
        if part.entity_type == IP and part.entity_name
    ]
    return [name for name in dict.fromkeys(names) if not _is_address(name) and _is_host_name(name)]


def alter_client_quotas(
    given: OperationContext, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    """Set and remove limits; each entity succeeds or fails as a whole."""
    records: list[Message] = []
    answers: list[AlterClientQuotasResponse.EntryData] = []
    seen: dict[QuotaEntity, None] = {}
    for entry in request.entries:
        code, text = ErrorCode.NONE, None
        # The order of the parts is that of records and descriptions, whatever the request's is.
        entity = quota_entity([(part.entity_type, part.entity_name) for part in entry.entity])
        try:
            _check_entity(entity, given.unresolved_hosts)
            if entity in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate quota entity in request")
            seen[entity] = None
            records += _entry_records(given.image, entity, entry)
        except ApiError as error:
            code, text = error.code, error.message
        answers.append(
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message=text,
                entity=[
                    AlterClientQuotasResponse.EntryData.EntityData(
                        entity_type=kind, entity_name=name
                    )
                    for kind, name in entity
                ],
            )
        )
    response = AlterClientQuotasResponse(entries=answers)
    return Decision(response, [] if request.validate_only else records, is_atomic=True)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_host_name(name: str) -> bool:
    return len(name) <= _MAX_HOST_NAME_LENGTH and _HOST_NAME.fullmatch(name) is not None


def _check_entity(pairs: QuotaEntity, unresolved_hosts: Collection[str]) -> None:
    if not pairs:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    types = [entity_type for entity_type, _ in pairs]
    for entity_type, name in pairs:
        if entity_type not in (USER, CLIENT_ID, IP):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {entity_type}"
            )
        if types.count(entity_type) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate entity type {entity_type}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {entity_type} not supported")
        is_host = entity_type == IP and name is not None and not _is_address(name)
        if is_host and (not _is_host_name(name or "") or name in unresolved_hosts):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host."
            )
    if IP in types and len(types) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity should not be combined with User or "
            "ClientId",
        )


def _entry_records(image: MetadataImage, entity: QuotaEntity, entry: _Entry) -> list[Message]:
    current = image.client_quotas.by_entity.get(entity, {})
    allowed = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    records: list[Message] = []
    for key in repeated(op.key for op in entry.ops):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {key}")
    for op in entry.ops:
        if op.remove:
            if op.key not in current:
                continue
        else:
            _check_value(allowed, op.key, op.value)
            if current.get(op.key) == op.value:
                continue
        records.append(
            ClientQuotaRecord(
                entity=[
                    ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                key=op.key,
                value=0.0 if op.remove else op.value,
                remove=op.remove,
            )
        )
    return records


def _check_value(allowed: _Keys, key: str, value: float) -> None:
    if key not in allowed:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not isfinite(value):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be a finite number")
    if value <= 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    limit = allowed[key]
    if limit is None:
        return
    if value > limit.maximum:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {limit.kind}."
        )
    if value % 1.0 > _WHOLE_WITHIN:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")
