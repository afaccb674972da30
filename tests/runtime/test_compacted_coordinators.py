"""The logs of both coordinators are compacted while clients use them; a restart loads the rest."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_harness import bootstrap_of
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from node_harness import Client, Home, connected, running
from waiting import until

from spindle.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from spindle.common.ids import TopicPartition as Partition
from spindle.coordinator.transactions.metadata import TransactionMetadata, TransactionState
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.runtime.node import Node

TOPIC_RESOURCE, SET = 2, 0
INTERNAL = (Partition(OFFSETS_TOPIC, 0), Partition(TRANSACTIONS_TOPIC, 0))
MAX_ROUNDS = 200


class Application:
    """Producers and groups, and the offsets that they were told are committed."""

    def __init__(self, bootstrap: str, life: int) -> None:
        self._server: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
        self.committed: dict[str, int] = {}
        self._producers = [self._producer(f"tx{n}") for n in range(2)]
        self._producers.append(self._producer(f"tx-of-life-{life}"))
        self._groups = {
            name: self._consumer(name) for name in ("plain", "exact0", "exact1", "gone")
        }
        self._admin = AdminClient(self._server)
        self._open = self._producer("open")
        self._round = 1000 * life

    def _producer(self, name: str) -> Producer:
        producer = Producer({**self._server, "transactional.id": name})
        producer.init_transactions(30)
        return producer

    def _consumer(self, group: str) -> Consumer:
        return Consumer({**self._server, "group.id": group, "enable.auto.commit": False})

    def _send_offset(self, producer: Producer, group: str, partition: int, offset: int) -> None:
        metadata = self._groups[group].consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("t", partition, offset)], metadata, 30)

    def work(self) -> None:
        """Commit and abort transactions, commit offsets outside of them, delete a group."""
        self._round += 1
        for number, producer in enumerate(self._producers):
            group = f"exact{number % 2}"
            for is_commit in (True, False):
                producer.begin_transaction()
                producer.produce("t", b"v", partition=number % 2)
                self._send_offset(producer, group, 0, self._round if is_commit else 10**6)
                if is_commit:
                    producer.commit_transaction(30)
                    self.committed[group] = self._round
                else:
                    producer.abort_transaction(30)
        for group in ("plain", "gone"):
            offset = [TopicPartition("t", 0, self._round)]
            self._groups[group].commit(offsets=offset, asynchronous=False)
        self.committed["plain"] = self._round
        self._admin.delete_consumer_groups(["gone"])["gone"].result(30)

    def leave_open(self) -> None:
        """Begin a transaction that is not ended; logs are compacted up to its first record."""
        self._open.begin_transaction()
        self._send_offset(self._open, "exact0", 1, 999)

    def close(self) -> None:
        for consumer in self._groups.values():
            consumer.close()


def transactions(node: Node) -> dict[str, TransactionMetadata]:
    """Return what the coordinator knows; the last epoch is not in its records."""
    assert node.broker is not None
    return {
        transaction.name: replace(transaction.metadata, last_producer_epoch=-1)
        for driver in node.broker.coordinators.transactions.shards
        for transaction in driver.shard.ids
    }


def offsets(node: Node) -> dict[tuple[str, int], tuple[int, bool]]:
    """Return the offsets by group and partition, and whether one of a transaction is pending."""
    assert node.broker is not None
    store = node.broker.groups.shards[0].shard.offsets
    return {
        (group, at.partition): (committed.offset, store.is_open(group, at))
        for group in store.group_ids()
        for at, committed in store.of_group(group).items()
    }


def pending(node: Node) -> list[tuple[int, str, int, int]]:
    assert node.broker is not None
    store = node.broker.groups.shards[0].shard.offsets
    return sorted(
        (producer_id, group, at.partition, committed.offset)
        for producer_id in store.pending_producers()
        for group, at, committed in store.pending_of(producer_id)
    )


def compacted_to(node: Node) -> Iterator[int]:
    """Yield up to where each internal log is compacted."""
    assert node.broker is not None
    for at in INTERNAL:
        partition = node.broker.replicas.lookup(*at)
        assert partition is not None
        yield partition.directory.store.cleaner_offset(at) or 0


def are_complete(node: Node) -> bool:
    return not any(transaction.state.is_prepared for transaction in transactions(node).values())


async def compact_often(client: Client) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    values = {
        "internal.segment.bytes": "2000",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "0",
    }
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=TOPIC_RESOURCE,
                resource_name=at.topic,
                configs=[
                    resource.AlterableConfig(name=name, config_operation=SET, value=value)
                    for name, value in values.items()
                ],
            )
            for at in INTERNAL
        ]
    )
    response = await client.ask(request)
    assert [one.error_code for one in response.responses] == [0, 0], response


async def live(node: Node, client: Client, life: int) -> Any:
    """Work until both logs are compacted far into this life; return what the node knows then."""
    assert node.broker is not None
    application = await asyncio.to_thread(Application, bootstrap_of(node), life)
    # The consumers ask for their coordinator, which creates its topic, at a time of their own.
    topics = node.broker.metadata
    await until(lambda: all(at.topic in topics.image.topics.by_name for at in INTERNAL))
    await compact_often(client)
    before = None
    for _ in range(MAX_ROUNDS):
        await asyncio.to_thread(application.work)
        if before is None:
            logs = [node.broker.replicas.lookup(*at) for at in INTERNAL]
            before = [log.log.log_end_offset for log in logs if log is not None]
        elif all(now > then for now, then in zip(compacted_to(node), before, strict=True)):
            break
    else:
        raise AssertionError(f"not compacted: {list(compacted_to(node))}, {before}")
    await asyncio.to_thread(application.leave_open)
    await asyncio.to_thread(application.close)
    await until(lambda: are_complete(node))
    known = offsets(node)
    for group, offset in application.committed.items():
        assert known[group, 0] == (offset, False)
    assert ("gone", 0) not in known
    return transactions(node), known, pending(node)


@pytest.mark.full
async def test_both_coordinators_load_what_compaction_left(tmp_path: Path) -> None:
    home = Home(
        tmp_path,
        1,
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        log_cleaner_backoff_ms="5",
    ).format()

    known: Any = None
    for life in range(3):
        async with running(home) as node, connected(node) as client:
            assert node.broker is not None
            if life == 0:
                await client.create_topic("t", 2)
            else:
                for shards in (
                    node.broker.groups,
                    node.broker.coordinators.transactions.shards,
                ):
                    await shards.wait_loaded()
                assert (transactions(node), offsets(node), pending(node)) == known
            known = await live(node, client, life)
            assert known[0]["open"].state is TransactionState.ONGOING
            assert [item[1:] for item in known[2]] == [("exact0", 1, 999)]
