"""Metadata logs of Apache Kafka are replayed, and our controller makes the decisions in them.

Where a record shows an event of a broker, the controller decides again on the image before it. The
result must be the records that stand in the log.
"""

import pytest
from recorded_log import RUNS, Recorded, recorded

from spindle.controller.broker_changes import BrokerChangeRecords
from spindle.controller.decision import ControllerSettings
from spindle.metadata.record_versions import record_version
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

SETTINGS = ControllerSettings(node_id=99, cluster_id="recorded")


def by_partition(records: list[Message]) -> list[str]:
    """Return the records sorted, because Kafka's order of partitions is that of a hash table."""
    return sorted(map(repr, records))


def decided(entry: Recorded) -> tuple[list[Message], list[list[Message]]] | None:
    """Return the records in the log, and the alternatives that our controller might write.

    The log must be equal to one alternative. None if the entry is not the result of a decision.
    """
    record = entry.record
    moved, start = entry.changes_before()
    if isinstance(record, UnregisterBrokerRecord):
        ours = BrokerChangeRecords(start, SETTINGS)
        ours.unregister(record.broker_id)
        return [*moved, record], [ours.records]
    if isinstance(record, RegisterBrokerRecord):
        known = start.cluster.brokers.get(record.broker_id)
        if known is None or known.incarnation_id == record.incarnation_id:
            return None
        candidates = []
        for is_clean in (True, False):
            ours = BrokerChangeRecords(start, SETTINGS)
            ours.forget_previous_incarnation(record.broker_id, is_clean=is_clean)
            candidates.append(ours.records)
        return moved, candidates
    if not isinstance(record, BrokerRegistrationChangeRecord):
        return None
    if record.fenced == 1:
        ours = BrokerChangeRecords(start, SETTINGS)
        ours.fence(record.broker_id)
        return [*moved, record], [ours.records]
    ours = BrokerChangeRecords(entry.before, SETTINGS)
    if record.fenced == -1:
        ours.unfence(record.broker_id)
        return [record, *entry.changes_after()], [ours.records]
    if record.in_controlled_shutdown:
        ours.begin_controlled_shutdown(record.broker_id)
        return [record, *entry.changes_after()], [ours.records]
    if record.log_dirs:
        ours = BrokerChangeRecords(start, SETTINGS)
        for directory in start.cluster.brokers[record.broker_id].directories:
            if directory not in record.log_dirs:
                ours.directory_failed(record.broker_id, directory)
        return moved, [ours.records]
    return None


@pytest.mark.parametrize(
    ("run", "decisions"),
    [
        ("all-directories-fail", 10),
        ("cordons", 18),
        ("directory-failure", 17),
        ("features", 5),
        ("fencing", 37),
        ("first-start", 10),
        ("moves", 10),
        ("reassignment", 8),
        ("strays", 15),
    ],
)
def test_decisions_are_those_of_the_recorded_controller(run: str, decisions: int) -> None:
    compared = 0
    for entry in recorded(run):
        decision = decided(entry)
        if decision is None:
            continue
        theirs, ours = decision
        compared += 1
        assert by_partition(theirs) in [by_partition(records) for records in ours], entry.offset
    assert compared == decisions


@pytest.mark.parametrize("run", RUNS)
def test_records_have_the_versions_that_kafka_gave_them(run: str) -> None:
    compared = 0
    for entry in recorded(run):
        if isinstance(entry.record, FeatureLevelRecord):
            continue
        compared += 1
        assert record_version(entry.record, entry.before.metadata_version) == entry.version
    assert compared > 20
