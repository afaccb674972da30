"""The version in which each metadata record is written, given the cluster's metadata.version.

Most records have one version. Registrations and partitions follow the level (KIP-584); a
BrokerRegistrationChangeRecord takes the lowest version that has all its fields.
"""

from spindle.metadata.features import (
    CORDONED_DIRECTORIES_LEVEL,
    DIRECTORY_ASSIGNMENT_LEVEL,
    ELR_LEVEL,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)


def register_broker_version(metadata_version: int) -> int:
    """Return the version of RegisterBrokerRecord: 2 adds migration, 3 directories, 4 cordons."""
    if metadata_version >= CORDONED_DIRECTORIES_LEVEL:
        return 4
    if metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL:
        return 3
    return 2 if metadata_version >= 8 else 1


def partition_version(metadata_version: int) -> int:
    """Return the version of partition records: 1 has directories, 2 the ELR."""
    if metadata_version >= ELR_LEVEL:
        return 2
    return 1 if metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL else 0


def registration_change_version(record: BrokerRegistrationChangeRecord) -> int:
    """Return the lowest version that carries all that is set in the record."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def record_version(record: Message, metadata_version: int) -> int:
    """Return the version to frame this record with."""
    kind = type(record)
    if kind is PartitionRecord or kind is PartitionChangeRecord:
        return partition_version(metadata_version)
    if kind is RegisterBrokerRecord:
        return register_broker_version(metadata_version)
    if isinstance(record, BrokerRegistrationChangeRecord):
        return registration_change_version(record)
    return 0
