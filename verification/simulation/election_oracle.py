"""Follows the committed records and finds unclean elections that were not necessary or allowed."""

from collections.abc import Sequence

from spindle.common.uuids import Uuid
from spindle.metadata.partitions import (
    RECOVERING,
    PartitionRegistration,
    merge,
    registration_of,
    without_elr,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from verification.simulation.metadata_oracle import MetadataOracle
from verification.simulation.record_oracle import RecordOracle
from verification.simulation.verdict import Verdict


class ElectionOracle:
    """Follows the committed records. If unclean elections are disabled for a topic, it has none.

    If the last member of an ISR is elected again although it may lack records (KIP-966), the
    controller counts the election as unclean; here it loses nothing.
    """

    def __init__(self, metadata: MetadataOracle, records: RecordOracle, verdict: Verdict) -> None:
        self._metadata = metadata
        self._records = records
        self._verdict = verdict
        self._partitions: dict[tuple[Uuid, int], PartitionRegistration] = {}

    def committed(self, records: Sequence[Message]) -> None:
        """Check the next committed records."""
        for record in records:
            match record:
                case PartitionRecord():
                    where = (bytes(record.topic_id), record.partition_id)
                    self._partitions[where] = registration_of(record)
                case PartitionChangeRecord():
                    where = (bytes(record.topic_id), record.partition_id)
                    before = self._partitions.get(where)
                    if before is not None:
                        after = self._partitions[where] = merge(before, record)
                        if after.leader >= 0 and after.leader_epoch > before.leader_epoch:
                            self._elected(where, before, after, records)
                case ClearElrRecord():
                    self._clear_elr(record.topic_name)

    def _clear_elr(self, name: str) -> None:
        for where, partition in self._partitions.items():
            oracle = self._records.find(*where)
            if not name or (oracle is not None and oracle.topic == name):
                self._partitions[where] = without_elr(partition)

    def _elected(
        self,
        where: tuple[Uuid, int],
        before: PartitionRegistration,
        after: PartitionRegistration,
        records: Sequence[Message],
    ) -> None:
        eligible = (*before.isr, *before.elr)
        oracle = self._records.find(*where)
        if oracle is None or after.leader in eligible or after.leader_recovery_state != RECOVERING:
            return
        if not oracle.may_lose:
            # The creator of a topic may not know yet that it exists, nor whether unclean elections
            # are enabled.
            self._verdict.check(
                before.last_known_elr == (after.leader,) or not oracle.end_offset,
                f"unclean election of {after.leader} in {oracle}, which nobody has allowed",
            )
            return
        oracle.unclean_epochs.append(after.leader_epoch)
        cluster = self._metadata.newest.cluster
        changing = _changing(records)
        for broker_id in eligible:
            self._verdict.check(
                broker_id in changing
                or not cluster.is_active(broker_id)
                or broker_id not in after.replicas
                or not cluster.has_online_directory(broker_id, after.directory(broker_id)),
                f"unclean election of {after.leader} in {oracle}, though {broker_id} has "
                "everything "
                "and is alive",
            )


def _changing(records: Sequence[Message]) -> set[int]:
    """Return the brokers that the same records fence, unfence or remove."""
    broker_ids = set()
    for record in records:
        if isinstance(
            record, BrokerRegistrationChangeRecord | RegisterBrokerRecord | UnregisterBrokerRecord
        ):
            broker_ids.add(record.broker_id)
        elif isinstance(record, FenceBrokerRecord):
            broker_ids.add(record.id)
    return broker_ids
