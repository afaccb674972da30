"""AddPartitionsToTxn with a coordinator that refuses to add the partitions."""

import asyncio
import gc
import weakref
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spindle.serving.context import RequestContext
from spindle.serving.handlers.transactions import handle_add_partitions


async def test_a_refusal_is_the_answer_and_is_freed_at_once() -> None:
    refusals: list[weakref.ref[ApiError]] = []

    async def add() -> Mapping[TopicPartition, ErrorCode]:
        refusal = ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        refusals.append(weakref.ref(refusal))
        try:
            raise refusal
        finally:
            del refusal

    topics = {"t": SimpleNamespace(partitions={0: None})}
    services: Any = SimpleNamespace(
        authorizer=SimpleNamespace(is_active=False),
        metadata=SimpleNamespace(image=SimpleNamespace(topics=SimpleNamespace(by_name=topics))),
        transactions=SimpleNamespace(add_partitions=lambda *_: asyncio.ensure_future(add())),
    )
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id", v3_and_below_topics=[topic]
    )
    context = RequestContext(request.API_KEY, 3, 0, "app", "127.0.0.1", "PLAINTEXT")
    gc.disable()
    try:
        response = await handle_add_partitions(services, context, request)
        await asyncio.sleep(0)
        (result,) = response.results_by_topic_v3_and_below
        (partition,) = result.results_by_partition
        assert partition.partition_error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert refusals[0]() is None
    finally:
        gc.enable()
