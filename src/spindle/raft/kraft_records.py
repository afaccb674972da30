"""Control records of the quorum: leader changes, kraft.version, voter sets (KIP-595, KIP-853).

Their values are plain messages of version 0 in flexible encoding; the version is also the first
field of each. LeaderChange has a version 1 with directory ids, which Kafka does not write either.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from spindle.common.errors import CorruptRecords, ProtocolViolation, UnsupportedMetadata
from spindle.common.ports import Bytes
from spindle.protocol.codec import decode, encode
from spindle.protocol.message import Message
from spindle.protocol.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from spindle.protocol.records.batch import BatchHeader, batches
from spindle.protocol.records.control import ControlType, read_control_type
from spindle.protocol.records.record import decode_records
from spindle.raft.voters import (
    FIRST_KRAFT_VERSION,
    RECONFIGURABLE_KRAFT_VERSION,
    KRaftVersionRange,
    ReplicaKey,
    Voter,
    VoterHistory,
    VoterSet,
    voter_endpoints,
)

_M = TypeVar("_M", bound=Message)
_VALUE_VERSION = 0
_CLASSES: dict[int, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}

ControlRecord = tuple[ControlType, bytes]
"""Type and encoded value, as `build_control_batch` takes them."""


class ReadControlRecord(NamedTuple):
    """A decoded control record and its offset."""

    offset: int
    message: Message


def leader_change(
    leader_id: int, voter_ids: Sequence[int], granting_ids: Sequence[int]
) -> ControlRecord:
    """Return the LeaderChange record with which a leader opens its epoch."""
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in voter_ids],
        granting_voters=[LeaderChangeMessage.Voter(voter_id=voter_id) for voter_id in granting_ids],
    )
    return ControlType.LEADER_CHANGE, encode(message, _VALUE_VERSION)


def kraft_version(version: int) -> ControlRecord:
    """Return the record of a kraft.version."""
    message = KRaftVersionRecord(k_raft_version=version)
    return ControlType.KRAFT_VERSION, encode(message, _VALUE_VERSION)


def voters(voter_set: VoterSet) -> ControlRecord:
    """Return the record of a set of voters (KIP-853)."""
    message = VotersRecord(voters=[_voter_message(voter) for voter in voter_set])
    return ControlType.KRAFT_VOTERS, encode(message, _VALUE_VERSION)


def snapshot_header(last_contained_timestamp_ms: int) -> ControlRecord:
    """Return the record that opens a snapshot."""
    message = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp_ms)
    return ControlType.SNAPSHOT_HEADER, encode(message, _VALUE_VERSION)


def snapshot_footer() -> ControlRecord:
    """Return the record that ends a snapshot."""
    return ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), _VALUE_VERSION)


def kraft_version_of(record: KRaftVersionRecord) -> int:
    """Return the level that a record sets.

    Raises:
        UnsupportedMetadata: the level is not known, so the records of voters may have changed.
    """
    level = record.k_raft_version
    if not FIRST_KRAFT_VERSION <= level <= RECONFIGURABLE_KRAFT_VERSION:
        raise UnsupportedMetadata(
            f"kraft.version {level} is not supported by this Spindle: it knows levels "
            f"{FIRST_KRAFT_VERSION}-{RECONFIGURABLE_KRAFT_VERSION}"
        )
    return level


def voter_set_of(record: VotersRecord) -> VoterSet:
    """Return the voter set that a record describes.

    Raises:
        CorruptRecords: two voters share a node id.
    """
    try:
        return VoterSet(_voter_of(voter) for voter in record.voters)
    except ValueError as error:
        raise CorruptRecords(f"voters record: {error}") from None


def read_control_records(
    buffer: Bytes, position: int, header: BatchHeader
) -> Iterator[ReadControlRecord]:
    """Yield the quorum's records in a control batch; unknown types are skipped.

    Raises:
        CorruptRecords: the batch or a value does not parse.
    """
    for record in decode_records(buffer, position, header):
        cls = _CLASSES.get(read_control_type(record.key))
        if cls is not None:
            yield ReadControlRecord(record.offset, _value(cls, record.value))


def apply_to_history(
    records: Bytes, history: VoterHistory, voters_changed: Callable[[int, VoterSet], None]
) -> None:
    """Add the voter sets and kraft.version levels in batches to the history.

    Raises:
        CorruptRecords: a control batch does not parse.
        UnsupportedMetadata: a kraft.version is not known.
    """
    for position, header in batches(records):
        if not header.is_control:
            continue
        for offset, message in read_control_records(records, position, header):
            if isinstance(message, KRaftVersionRecord):
                history.add_kraft_version(offset, kraft_version_of(message))
            elif isinstance(message, VotersRecord):
                voters_changed(offset, voter_set_of(message))


def _value(cls: type[_M], value: bytes | None) -> _M:
    try:
        message, _ = decode(cls, _VALUE_VERSION, value or b"")
    except ProtocolViolation as error:
        raise CorruptRecords(f"control record: {error}") from None
    return message


def _voter_message(voter: Voter) -> VotersRecord.Voter:
    return VotersRecord.Voter(
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[
            VotersRecord.Voter.Endpoint(
                name=endpoint.listener, host=endpoint.host, port=endpoint.port
            )
            for endpoint in voter.endpoints
        ],
        k_raft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
            min_supported_version=voter.versions.min_version,
            max_supported_version=voter.versions.max_version,
        ),
    )


def _voter_of(voter: VotersRecord.Voter) -> Voter:
    feature = voter.k_raft_version_feature
    return Voter(
        key=ReplicaKey(voter.voter_id, voter.voter_directory_id),
        endpoints=voter_endpoints(voter.endpoints),
        versions=KRaftVersionRange(feature.min_supported_version, feature.max_supported_version),
    )
