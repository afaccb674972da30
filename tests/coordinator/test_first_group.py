"""The first group of a cluster waits until its coordinator knows its partition."""

from collections.abc import Awaitable
from typing import cast

import pytest
from coordinator_log import context, image_of, start_broker

from spindle.common.errors import ErrorCode
from spindle.protocol.api import ApiKey
from spindle.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from spindle.serving.handler_table import broker_handlers
from spindle.serving.services import BrokerServices


@pytest.mark.parametrize(
    ("comes", "told"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.NOT_COORDINATOR)]
)
async def test_request_waits_for_the_partitions_of_groups(comes: bool, told: ErrorCode) -> None:
    broker = start_broker(elect=False)
    later, broker.metadata.image = broker.metadata.image, image_of()
    waits: list[float] = []

    async def learn_partitions(timeout_s: float) -> None:
        waits.append(timeout_s)
        if comes:
            broker.metadata.image = later
            for partition in range(2):
                broker.groups.on_elected(partition, 0)
            await broker.groups.wait_loaded()

    broker.metadata.on_wait = learn_partitions
    handlers = broker_handlers(cast("BrokerServices", broker), lambda: 0)
    for _ in range(2):
        request = DescribeGroupsRequest(groups=["g"])
        pending = handlers[ApiKey.DESCRIBE_GROUPS](context(6), request)
        assert isinstance(pending, Awaitable)
        response = await pending
        assert isinstance(response, DescribeGroupsResponse)
        assert [group.error_code for group in response.groups] == [told]
    assert len(waits) == (1 if comes else 2)
    broker.groups.close()
