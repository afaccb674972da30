"""Asks all brokers of a cluster for sizes and offsets, one sample after the other."""

from collections.abc import Mapping
from typing import Any

from spindle.cli.sampling.sample_lines import sample_document
from spindle.cli.tools.failures import failure
from spindle.client.admin.cluster import describe_brokers
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import ask_every_broker, log_dirs_of
from spindle.client.cluster_metadata import BrokerAddress, ClusterView
from spindle.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets_request
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import uuid_text
from spindle.planner.samples import LedSample
from spindle.protocol.messages.list_offsets import ListOffsetsResponse


def take_sample(client: WireClient, time_ms: int) -> list[dict[str, Any]]:
    """Return a document of each broker: its directories, and the offsets of what it leads.

    A broker that does not answer has a document with the reason.

    Args:
        time_ms: the present time, since the epoch.

    Raises:
        ApiError, ClientError: the cluster could not be asked for its brokers and partitions.
    """
    brokers = describe_brokers(client)
    led = _led(client.metadata())

    def ask(single: WireClient, broker: BrokerAddress) -> dict[str, Any]:
        views = log_dirs_of(single, broker)
        offsets = _offsets(single, broker, led.get(broker.node_id, {}))
        return sample_document(time_ms, brokers.cluster_id, broker.node_id, views, offsets)

    answers = ask_every_broker(client, brokers.nodes, ask)
    return [
        sample_document(time_ms, brokers.cluster_id, broker, None, {}, failure(answer).plainly)
        if isinstance(answer, Exception)
        else answer
        for broker, answer in answers.items()
    ]


def _led(view: ClusterView) -> dict[int, dict[TopicPartition, str]]:
    """Return the partitions that each broker leads, with their topic ids."""
    led: dict[int, dict[TopicPartition, str]] = {}
    for name, topic in view.topics.items():
        for number, partition in topic.partitions.items():
            where = TopicPartition(name, number)
            led.setdefault(partition.leader, {})[where] = uuid_text(topic.topic_id)
    return led


def _offsets(
    client: WireClient, broker: BrokerAddress, led: Mapping[TopicPartition, str]
) -> dict[TopicPartition, LedSample]:
    """Return the offsets of partitions; those that the broker leads no longer are left out."""
    if not led:
        return {}
    starts, ends = (
        _list_offsets(client, broker, dict.fromkeys(led, number)) for number in (EARLIEST, LATEST)
    )
    return {
        where: LedSample(topic_id, starts[where], ends[where])
        for where, topic_id in led.items()
        if where in starts and where in ends
    }


def _list_offsets(
    client: WireClient, broker: BrokerAddress, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    request = list_offsets_request(
        wanted, isolation_level=READ_UNCOMMITTED, timeout_ms=client.settings.request_timeout_ms
    )
    answer = client.ask(request, ListOffsetsResponse, broker=broker)
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    }
