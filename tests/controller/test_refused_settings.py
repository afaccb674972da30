"""Texts of refused configurations and quotas, as Apache Kafka 4.3.1 gives them."""

from collections.abc import Collection, Sequence
from math import inf, nan
from typing import Any

import pytest
from controller_harness import Harness, uuid

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.alter_configs import AlterConfigsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

ENTRY = AlterClientQuotasRequest.EntryData
SET, DELETE = 0, 1
TWICE = "Error due to duplicate config keys"
NULLS = "Null value not supported for : "

Edits = list[tuple[str, str | None, int]]


class NoAddress:
    """A resolver that finds an address for every name except these."""

    def __init__(self, *names: str) -> None:
        self._names = names

    async def __call__(self, names: Sequence[str]) -> Collection[str]:
        return [name for name in names if name in self._names]


async def started(**options: Any) -> Harness:
    node = Harness(**options)
    node.quorum.become_leader(1, 1)
    await node.broker(1, [uuid(1)])
    return node


def one_by_one(edits: Edits) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=name, value=value, config_operation=operation)
        for name, value, operation in edits
    ]
    changed = resource(resource_type=4, resource_name="1", configs=configs)
    return IncrementalAlterConfigsRequest(resources=[changed])


def as_a_whole(edits: Edits) -> AlterConfigsRequest:
    resource = AlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=name, value=value) for name, value, _ in edits]
    return AlterConfigsRequest(
        resources=[resource(resource_type=4, resource_name="1", configs=configs)]
    )


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'absent' does not exist."),
        (
            "..",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: '..' is not allowed",
        ),
        (
            "a b",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
    ],
)
async def test_topics_that_cannot_be(name: str, code: ErrorCode, text: str) -> None:
    node = await started()
    for request in (
        one_by_one([("retention.ms", "1", SET)]),
        as_a_whole([("retention.ms", "1", SET)]),
    ):
        request.resources[0].resource_type = 2
        request.resources[0].resource_name = name
        (answer,) = (await node.request(request)).responses
        assert (answer.error_code, answer.error_message) == (code, text)


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ([("retention.ms", "1", SET), ("retention.ms", "2", SET)], TWICE),
        ([("a", None, SET), ("b", "1", SET), ("b", None, SET)], TWICE),
        ([("a", None, SET), ("b", "1", SET), ("c", None, SET)], NULLS + "a, c"),
    ],
)
async def test_keys_twice_and_values_that_are_null(edits: Edits, text: str) -> None:
    node = await started()
    done = len(node.quorum.batches)
    for request in (one_by_one(edits), as_a_whole(edits)):
        (answer,) = (await node.request(request)).responses
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)
    assert node.records(done) == []


async def test_a_key_that_is_removed_needs_no_value() -> None:
    node = await started()
    request = one_by_one([("log.retention.ms", None, DELETE)])
    (answer,) = (await node.request(request)).responses
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("kind", "key", "value", "text"),
    [
        ("user", "consumer_byte_rate", -1.0, "Quota consumer_byte_rate must be greater than 0"),
        *(
            ("user", key, value, f"Quota {key} must be a finite number")
            for key in ("consumer_byte_rate", "request_percentage")
            for value in (inf, -inf, nan)
        ),
        ("user", "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        (
            "user", "producer_byte_rate", 1e30,
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            "ip", "connection_creation_rate", 2.0**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)  # fmt: skip
async def test_malformed_values_of_quotas_are_refused(
    kind: str, key: str, value: float, text: str
) -> None:
    node = await started()
    entity = [ENTRY.EntityData(entity_type=kind, entity_name="127.0.0.1")]
    ops = [ENTRY.OpData(key=key, value=value)]
    request = AlterClientQuotasRequest(entries=[ENTRY(entity=entity, ops=ops)])
    (answer,) = (await node.request(request)).entries
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)


async def test_fractions_where_they_make_sense() -> None:
    node = await started()
    entity = [ENTRY.EntityData(entity_type="user", entity_name="u")]
    ops = [
        ENTRY.OpData(key="request_percentage", value=12.5),
        ENTRY.OpData(key="producer_byte_rate", value=2.0**31),
    ]
    request = AlterClientQuotasRequest(entries=[ENTRY(entity=entity, ops=ops)])
    assert (await node.request(request)).entries[0].error_code == ErrorCode.NONE


async def test_a_quota_for_a_host_name_without_an_address_is_refused() -> None:
    node = await started(unresolved=NoAddress("nowhere.example"))
    codes = []
    for name in ("somewhere.example", "nowhere.example", "10.0.0.1", "no name", "::::"):
        entity = [ENTRY.EntityData(entity_type="ip", entity_name=name)]
        ops = [ENTRY.OpData(key="connection_creation_rate", value=5.0)]
        request = AlterClientQuotasRequest(entries=[ENTRY(entity=entity, ops=ops)])
        (answer,) = (await node.request(request)).entries
        codes.append(ErrorCode(answer.error_code))
    refused = ErrorCode.INVALID_REQUEST
    assert codes == [ErrorCode.NONE, refused, ErrorCode.NONE, refused, refused]
