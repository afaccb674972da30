"""The first group of a cluster waits until its coordinator knows its partition."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from coordinator_log import context, image_of, start_broker

from spindle.common.errors import ErrorCode
from spindle.metadata.image import MetadataImage
from spindle.protocol.api import ApiKey
from spindle.protocol.messages.describe_groups import DescribeGroupsRequest
from spindle.serving.handler_table import broker_handlers
from spindle.serving.services import BrokerServices


@pytest.mark.parametrize(
    ("comes", "told"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.NOT_COORDINATOR)]
)
async def test_request_waits_for_the_partitions_of_groups(comes: bool, told: ErrorCode) -> None:
    broker = start_broker(elect=False)
    later, broker.metadata.image = broker.metadata.image, image_of()
    waits: list[float] = []

    async def wait_for(predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        waits.append(timeout_s)
        if comes:
            broker.metadata.image = later
            for partition in range(2):
                broker.groups.on_elected(partition, 0)
            await broker.groups.wait_loaded()
        return predicate(broker.metadata.image)

    cast("Any", broker.metadata).wait_for = wait_for
    handlers = broker_handlers(cast("BrokerServices", broker), lambda: 0)
    for _ in range(2):
        request = DescribeGroupsRequest(groups=["g"])
        response = await handlers[ApiKey.DESCRIBE_GROUPS](context(6), request)
        assert [group.error_code for group in response.groups] == [told]
    assert len(waits) == (1 if comes else 2)
    broker.groups.close()
