"""The version of each record follows the cluster's level, or its content."""

from typing import Any

import pytest
from metadata_history import image_of, uuid

from spindle.metadata.record_versions import record_version
from spindle.metadata.snapshot import snapshot_records
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from spindle.protocol.metadata_frame import frame, parse_frame


@pytest.mark.parametrize(
    ("level", "register", "partition"),
    [(7, 1, 0), (8, 2, 0), (16, 2, 0), (17, 3, 1), (22, 3, 1), (23, 3, 2), (29, 3, 2), (30, 4, 2)],
)
def test_record_versions_follow_the_metadata_version(
    level: int, register: int, partition: int
) -> None:
    assert record_version(RegisterBrokerRecord(), level) == register
    assert record_version(PartitionRecord(), level) == partition
    assert record_version(PartitionChangeRecord(), level) == partition
    assert record_version(TopicRecord(), level) == 0


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"fenced": 1}, 0),
        ({"in_controlled_shutdown": 1}, 1),
        ({"log_dirs": [uuid(1)]}, 2),
        ({"cordoned_log_dirs": []}, 3),
        ({"fenced": -1, "log_dirs": [uuid(1)]}, 2),
    ],
)
def test_a_registration_change_takes_the_lowest_version_that_says_it_all(
    fields: dict[str, Any], version: int
) -> None:
    record = BrokerRegistrationChangeRecord(broker_id=1, **fields)
    assert record_version(record, 30) == version
    assert parse_frame(frame(record, version)) == (record, version)


@pytest.mark.parametrize("level", [7, 14, 15, 17, 22, 23, 29, 30])
def test_a_snapshot_holds_nothing_that_its_level_cannot_say(level: int) -> None:
    image = image_of(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=level),
            RegisterBrokerRecord(broker_id=1, log_dirs=[uuid(1)], cordoned_log_dirs=[uuid(1)]),
            RegisterControllerRecord(controller_id=1),
            TopicRecord(name="t", topic_id=uuid(2)),
            PartitionRecord(
                partition_id=0,
                topic_id=uuid(2),
                replicas=[1],
                leader_epoch=0,
                partition_epoch=0,
                directories=[uuid(1)],
                eligible_leader_replicas=[1],
                last_known_elr=[1],
            ),
        ]
    )
    for record in snapshot_records(image):
        version = record_version(record, level)
        assert parse_frame(frame(record, version)) == (record, version)
    controllers = [r for r in snapshot_records(image) if isinstance(r, RegisterControllerRecord)]
    assert len(controllers) == (1 if level >= 15 else 0)
