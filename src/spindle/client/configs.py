"""DescribeConfigs: the configuration of topics and brokers as it applies (KIP-133, KIP-226)."""

from collections.abc import Sequence
from enum import IntEnum

from spindle.client.errors import raise_for
from spindle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)


class ConfigResource(IntEnum):
    """What a configuration belongs to, by the numbers of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def describe_configs_request(
    kind: ConfigResource, names: Sequence[str], keys: Sequence[str] | None = None
) -> DescribeConfigsRequest:
    """Ask for the configuration of resources of one kind: these keys, or all with None."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
            for name in names
        ]
    )


def described_configs(response: DescribeConfigsResponse) -> dict[str, dict[str, str | None]]:
    """Key and value per resource name; the value of a secret is None.

    Raises:
        ApiError: the first resource that was refused.
    """
    described = {}
    for result in response.results:
        raise_for(
            result.error_code, f"configuration of {result.resource_name!r}", result.error_message
        )
        described[result.resource_name] = {c.name: c.value for c in result.configs}
    return described
