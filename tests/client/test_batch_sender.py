"""The sender of batches against answers that no broker should give."""

from typing import Any

import pytest

from spindle.client.blocking.batch_sender import BatchSender, GatheredRecords
from spindle.client.blocking.settings import client_settings
from spindle.client.cluster_metadata import BrokerAddress, ClusterView, PartitionView, TopicView
from spindle.client.transactions import ProducerIdentity
from spindle.common.errors import ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.protocol.messages.produce import ProduceResponse


class Leader:
    """A client with one broker, and the connection to it."""

    is_open = True
    settings = client_settings({"bootstrap.servers": "broker:9092"})

    def __init__(self, answered: list[str]) -> None:
        self._answered = answered

    def current_view(self, topics: list[str]) -> ClusterView:
        partition = PartitionView(0, 1, 0, (1,), (1,), ())
        return ClusterView(
            brokers={1: BrokerAddress(1, "broker", 9092, None)},
            topics={name: TopicView(name, ZERO_UUID, False, {0: partition}) for name in topics},
        )

    def open_leader(self, partition: TopicPartition) -> "Leader":
        return self

    def send(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        pass

    def receive(self) -> ProduceResponse:
        topic = ProduceResponse.TopicProduceResponse
        partition = topic.PartitionProduceResponse
        return ProduceResponse(
            responses=[
                topic(name=name, partition_responses=[partition(index=0)])
                for name in self._answered
            ]
        )


def sender_to(leader: Any) -> BatchSender:
    sender = BatchSender(leader, ProducerIdentity(7, 0))
    for name in ("t", "u"):
        sender.send(GatheredRecords(TopicPartition(name, 0), b"\x0c\0\0\0\1\1\0", 1, 0))
    return sender


def test_batches_that_the_broker_answers_are_stored() -> None:
    sender_to(Leader(["t", "u"])).flush()


@pytest.mark.parametrize("answered", [["t"], [], ["t", "u", "v"]])
def test_an_answer_without_a_batch_does_not_mean_that_it_is_stored(answered: list[str]) -> None:
    with pytest.raises(ProtocolViolation, match="other partitions"):
        sender_to(Leader(answered)).flush()
