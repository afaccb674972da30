"""Client quotas per user, client id and address (KIP-546, KIP-612)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from spindle.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A part of an entity: this name, the default with `is_default`, or any with neither."""

    entity_type: str
    name: str | None = None
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """The quotas of one entity: type to name (None is the default), and key to value."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


def describe_quotas(client: WireClient, filters: Sequence[QuotaFilter]) -> list[QuotaEntry]:
    """Return the entities that consist of exactly these parts.

    Raises:
        ApiError: the broker refused.
        ClientError: no broker could be asked.
    """
    component = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[
            component(
                entity_type=quota_filter.entity_type,
                match_type=_match(quota_filter),
                match=quota_filter.name,
            )
            for quota_filter in filters
        ],
        strict=True,
    )
    answer = client.retrying(lambda: client.ask(request, DescribeClientQuotasResponse))
    raise_refusal(answer.error_code, answer.error_message)
    return [
        QuotaEntry(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def _match(wanted: QuotaFilter) -> int:
    if wanted.is_default:
        return _DEFAULT
    return _ANY if wanted.name is None else _EXACT


def alter_quotas(
    client: WireClient,
    entity: Mapping[str, str | None],
    values: Mapping[str, float],
    deletions: Sequence[str],
) -> None:
    """Set and remove quotas of one entity.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    entry = AlterClientQuotasRequest.EntryData
    ops = [entry.OpData(key=key, value=value) for key, value in values.items()]
    ops += [entry.OpData(key=key, remove=True) for key in deletions]
    parts = [entry.EntityData(entity_type=t, entity_name=n) for t, n in entity.items()]
    request = AlterClientQuotasRequest(entries=[entry(entity=parts, ops=ops)])
    for result in client.retrying(lambda: client.ask(request, AlterClientQuotasResponse)).entries:
        raise_refusal(result.error_code, result.error_message)
