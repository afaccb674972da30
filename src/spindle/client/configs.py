"""DescribeConfigs: the effective configuration of topics and brokers (KIP-133, KIP-226)."""

from collections.abc import Sequence

from spindle.client.errors import raise_for
from spindle.config.resources import ConfigResourceType
from spindle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)


def describe_configs_request(
    kind: ConfigResourceType, names: Sequence[str], keys: Sequence[str] | None = None
) -> DescribeConfigsRequest:
    """Return a request for these keys of resources of one kind; None means all keys."""
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
    """Return key and value per resource name; the value of a secret is None.

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
