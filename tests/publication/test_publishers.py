"""Waiting until a node's metadata knows all brokers."""

from spindle.metadata_log.committed import CommittedBatch
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from spindle.publication.publishers import ActiveBrokersWatch, ImagePublisher


def commit(publisher: ImagePublisher, *records: Message) -> None:
    base = publisher.last_committed_offset + 1
    publisher.on_commit([CommittedBatch(base, base + len(records) - 1, 1, 0, 1, list(records))])


def registered(broker_id: int) -> Message:
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=5, fenced=True)


def test_one_call_when_the_last_broker_is_active() -> None:
    publisher = ImagePublisher()
    calls: list[str] = []
    commit(publisher, FeatureLevelRecord(name="metadata.version", feature_level=30))
    ActiveBrokersWatch(publisher, [1, 2], lambda: calls.append("both"))
    commit(publisher, registered(1), registered(2), UnfenceBrokerRecord(id=1, epoch=5))
    assert calls == [], "a fenced broker is none that clients are told of"
    commit(publisher, UnfenceBrokerRecord(id=2, epoch=5))
    assert calls == ["both"]
    commit(publisher, FenceBrokerRecord(id=2, epoch=5))
    commit(publisher, UnfenceBrokerRecord(id=2, epoch=5))
    assert calls == ["both"], "it was told"
    ActiveBrokersWatch(publisher, [1, 2], lambda: calls.append("known before"))
    assert calls == ["both", "known before"]
