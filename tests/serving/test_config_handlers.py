"""DescribeConfigs, ListConfigResources and the broker's part of changing configuration."""

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rights import Rights

from spindle.authorization.authorizer import NoAuthorizer
from spindle.authorization.operations import CLUSTER_NAME, Operation
from spindle.common.errors import ErrorCode
from spindle.config.node_config import NodeConfig
from spindle.config.resources import ConfigResourceType
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE
from spindle.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from spindle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from spindle.protocol.messages.list_config_resources import ListConfigResourcesRequest
from spindle.protocol.messages.metadata_records import (
    ConfigRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from spindle.serving.context import RequestContext
from spindle.serving.handlers.alter_configs import alter_configs, incremental_alter_configs
from spindle.serving.handlers.describe_configs import describe_configs, list_config_resources
from spindle.serving.services import BrokerServices

NODE = NodeConfig.from_properties(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://h1:9092,CONTROLLER://h1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@h1:9093",
        "log.dirs": "/a,/b",
    }
)
TOPIC, BROKER, LOGGER = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
)
GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
SET, DELETE, APPEND = 0, 1, 2

Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
Replaced = AlterConfigsRequest.AlterConfigsResource


class Controller:
    """Accepts what it is sent and keeps it."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def request(self, message: Any, context: Any = None) -> Any:
        self.requests.append(message)
        is_incremental = isinstance(message, IncrementalAlterConfigsRequest)
        response: Any = IncrementalAlterConfigsResponse if is_incremental else AlterConfigsResponse
        row = response.AlterConfigsResourceResponse
        return response(
            responses=[
                row(
                    resource_type=r.resource_type, resource_name=r.resource_name, error_message=None
                )
                for r in message.resources
            ]
        )


def record(kind: int, name: str, key: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


@pytest.fixture
def services() -> BrokerServices:
    delta = MetadataDelta(EMPTY_IMAGE)
    for message in (
        RegisterBrokerRecord(broker_id=1, broker_epoch=1),
        RegisterBrokerRecord(broker_id=2, broker_epoch=2),
        TopicRecord(name="t", topic_id=bytes(15) + b"\x07"),
        record(TOPIC, "t", "retention.ms", "77"),
        record(BROKER, "", "message.max.bytes", "2000"),
        record(BROKER, "1", "message.max.bytes", "3000"),
        record(GROUP, "g", "consumer.session.timeout.ms", "50000"),
        record(METRICS, "m", "interval.ms", "1000"),
    ):
        delta.replay(message, 0)
    parts = SimpleNamespace(
        node_id=1,
        config=NODE,
        metadata=SimpleNamespace(image=delta.apply(EMPTY_IMAGE.provenance)),
        controller=Controller(),
        authorizer=NoAuthorizer(),
    )
    return cast(BrokerServices, parts)


def context(api_key: int = 32, version: int = 4) -> RequestContext:
    return RequestContext(api_key, version, 1, "client", "127.0.0.1", "PLAINTEXT")


def describe(
    services: BrokerServices, kind: int, name: str, *keys: str, **options: bool
) -> DescribeConfigsResponse.DescribeConfigsResult:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[asked], **options)
    (describe,) = asyncio.run(describe_configs(services, context(), request)).results
    assert (describe.resource_type, describe.resource_name) == (kind, name)
    return describe


async def test_a_resource_named_again_is_refused(services: BrokerServices) -> None:
    asked = DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name="t")
    request = DescribeConfigsRequest(resources=[asked, asked])
    first, again = (await describe_configs(services, context(), request)).results
    assert first.error_code == ErrorCode.NONE
    assert (again.error_code, again.configs) == (ErrorCode.INVALID_REQUEST, [])


def test_a_topic_is_described_with_values_and_sources(services: BrokerServices) -> None:
    described = describe(services, TOPIC, "t", "retention.ms", "max.message.bytes")
    actual = {c.name: (c.value, c.config_source, c.read_only) for c in described.configs}
    assert actual == {"retention.ms": ("77", 1, False), "max.message.bytes": ("3000", 2, False)}
    assert described.configs[0].synonyms == []
    assert described.configs[0].documentation is None


def test_synonyms_and_documentation_are_returned_if_requested(services: BrokerServices) -> None:
    options = {"include_synonyms": True, "include_documentation": True}
    described = describe(services, TOPIC, "t", "max.message.bytes", **options)
    (config,) = described.configs
    assert config.documentation == "Largest record batch that is accepted, in bytes."
    assert config.config_type == 3
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("message.max.bytes", "3000", 2),
        ("message.max.bytes", "2000", 3),
        ("message.max.bytes", "1048588", 5),
    ]


def test_a_broker_and_the_default_of_all(services: BrokerServices) -> None:
    own = {c.name: c for c in describe(services, BROKER, "1").configs}
    assert (own["message.max.bytes"].value, own["log.dirs"].read_only) == ("3000", True)
    assert len(own) == 350
    (default,) = describe(services, BROKER, "").configs
    assert (default.name, default.value, default.config_source) == ("message.max.bytes", "2000", 3)


def test_groups_and_client_metrics(services: BrokerServices) -> None:
    group = {c.name: c for c in describe(services, GROUP, "g").configs}
    assert group["consumer.session.timeout.ms"].config_source == 8
    unknown = {c.name: c for c in describe(services, GROUP, "other").configs}
    assert unknown["consumer.session.timeout.ms"].value == "45000"
    metrics = {c.name: c.value for c in describe(services, METRICS, "m").configs}
    assert metrics == {"interval.ms": "1000", "match": "", "metrics": ""}


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "1 or empty string, but received 2"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (METRICS, "", ErrorCode.INVALID_REQUEST, "subscription name must not be empty"),
        (99, "x", ErrorCode.INVALID_REQUEST, "Unsupported resource type: 99"),
    ],
)
def test_an_invalid_resource_cannot_be_described(
    services: BrokerServices, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    described = describe(services, kind, name)
    assert (described.error_code, described.configs) == (code, [])
    assert message in (described.error_message or "")


def test_an_impossible_topic_name(services: BrokerServices) -> None:
    described = describe(services, TOPIC, "a/b")
    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def listed(services: BrokerServices, version: int, *kinds: int) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = list_config_resources(services, context(74, version), request)
    assert response.error_code == ErrorCode.NONE
    return [(r.resource_type, r.resource_name) for r in response.config_resources]


def test_resources_with_settings_are_listed_by_type(services: BrokerServices) -> None:
    assert listed(services, 0) == [(METRICS, "m")]
    assert listed(services, 1, GROUP, TOPIC) == [(GROUP, "g"), (TOPIC, "t")]
    everything = listed(services, 1)
    assert (LOGGER, "2") in everything
    assert len(everything) == 7


def test_listing_an_unknown_kind(services: BrokerServices) -> None:
    request = ListConfigResourcesRequest(resource_types=[99])
    response = list_config_resources(services, context(74, 1), request)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


def change(kind: int, name: str, key: str, value: str | None, operation: int = SET) -> Changed:
    config = Changed.AlterableConfig(name=key, value=value, config_operation=operation)
    return Changed(resource_type=kind, resource_name=name, configs=[config])


def incremental(
    services: BrokerServices, *resources: Changed, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = asyncio.run(incremental_alter_configs(services, context(44), request))
    for asked, row in zip(resources, response.responses, strict=True):
        assert (row.resource_type, row.resource_name) == (asked.resource_type, asked.resource_name)
    return [(row.error_code, row.error_message) for row in response.responses]


def forwarded(services: BrokerServices) -> list[Any]:
    return cast(Controller, services.controller).requests


def test_the_broker_refuses_and_forwards_the_rest_in_order(services: BrokerServices) -> None:
    assert incremental(
        services,
        change(BROKER, "1", "cordoned.log.dirs", "/c"),
        change(TOPIC, "t", "retention.ms", "5"),
        change(BROKER, "2", "message.max.bytes", "5"),
        change(BROKER, "", "log.retention.ms", "0"),
        change(BROKER, "1", "message.max.bytes", None, DELETE),
    ) == [
        (
            ErrorCode.INVALID_REQUEST,
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or "
            "log.dir. Missing entries : /c",
        ),
        (ErrorCode.NONE, None),
        (ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (
            ErrorCode.INVALID_REQUEST,
            "log.retention.ms must be -1 (unlimited) or at least 1, but is 0",
        ),
        (ErrorCode.NONE, None),
    ]
    (request,) = forwarded(services)
    assert [r.resource_name for r in request.resources] == ["t", "1"]


def test_nothing_is_forwarded_when_all_is_refused(services: BrokerServices) -> None:
    (answer,) = incremental(services, change(BROKER, "1", "log.dirs", "/x"))
    assert answer[0] == ErrorCode.INVALID_REQUEST
    assert forwarded(services) == []


def test_no_file_is_looked_at_for_one_who_may_not_change_brokers(services: BrokerServices) -> None:
    looked_at: list[Any] = []

    async def check_listeners(dynamic: Any) -> None:
        looked_at.append(dynamic)

    services.check_listeners = check_listeners
    key = "listener.name.tls.ssl.keystore.location"
    services.authorizer = rights = Rights()
    (answer,) = incremental(services, change(BROKER, "1", key, "/etc/hosts"))
    assert answer == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    assert looked_at == []
    rights.allowed = {(Operation.ALTER_CONFIGS, CLUSTER_NAME)}
    assert incremental(services, change(BROKER, "1", key, "/etc/hosts")) == [(0, None)]
    assert looked_at == [{"message.max.bytes": "3000", key: "/etc/hosts"}]


def replaced(kind: int, name: str, key: str, value: str) -> Replaced:
    config = Replaced.AlterableConfig(name=key, value=value)
    return Replaced(resource_type=kind, resource_name=name, configs=[config])


def test_a_sender_without_the_right_gets_no_errors_of_values(services: BrokerServices) -> None:
    """Kafka 4.4 asks the authorizer first, and sends no text: a value's error names settings."""
    services.authorizer = Rights()
    refused = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    asked = [("1", "node.id", "2"), ("7", "message.max.bytes", "3000"), ("", "log.dirs", "/")]
    for name, key, value in asked:
        assert incremental(services, change(BROKER, name, key, value)) == [refused]
        request = AlterConfigsRequest(resources=[replaced(BROKER, name, key, value)])
        (answered,) = asyncio.run(alter_configs(services, context(33), request)).responses
        assert (answered.error_code, answered.error_message) == refused
    assert forwarded(services) == []


async def test_alter_configs_refuses_static_broker_keys_and_forwards_topics(
    services: BrokerServices,
) -> None:
    resources = [replaced(BROKER, "1", "node.id", "2"), replaced(TOPIC, "t", "retention.ms", "1")]
    request = AlterConfigsRequest(resources=resources, validate_only=True)
    response = await alter_configs(services, context(33), request)
    assert [row.error_code for row in response.responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    (sent,) = forwarded(services)
    assert sent.validate_only
    assert [r.resource_name for r in sent.resources] == ["t"]


NAME = "spindle.tests.levels"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(logging.NOTSET)


def test_levels_of_loggers_are_set_and_described(
    services: BrokerServices, logger: logging.Logger
) -> None:
    assert incremental(services, change(LOGGER, "1", NAME, "WARN")) == [(ErrorCode.NONE, None)]
    assert logger.level == logging.WARNING
    (config,) = describe(services, LOGGER, "1", NAME).configs
    assert (config.name, config.value, config.config_source) == (NAME, "WARN", 6)
    assert incremental(services, change(LOGGER, "1", NAME, None, DELETE))[0][0] == ErrorCode.NONE
    assert logger.level == logging.NOTSET
    assert forwarded(services) == []


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (change(LOGGER, "1", NAME, "LOUD"), ErrorCode.INVALID_CONFIG),
        (change(LOGGER, "1", "spindle.none", "INFO"), ErrorCode.INVALID_CONFIG),
        (change(LOGGER, "1", NAME, "INFO", APPEND), ErrorCode.INVALID_REQUEST),
        (change(LOGGER, "1", "root", None, DELETE), ErrorCode.INVALID_REQUEST),
        (change(LOGGER, "2", NAME, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_levels_that_are_refused(
    services: BrokerServices, logger: logging.Logger, asked: Changed, code: ErrorCode
) -> None:
    assert incremental(services, asked)[0][0] == code
    assert logger.level == logging.INFO


def test_a_level_is_only_checked(services: BrokerServices, logger: logging.Logger) -> None:
    asked = change(LOGGER, "1", NAME, "ERROR")
    assert incremental(services, asked, validate_only=True)[0][0] == ErrorCode.NONE
    assert logger.level == logging.INFO
