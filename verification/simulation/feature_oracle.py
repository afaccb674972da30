"""Checks that committed records have only the content that the committed feature levels allow."""

from collections.abc import Sequence

from spindle.common.uuids import Uuid
from spindle.metadata.features import ELR_VERSION
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from verification.simulation.verdict import Verdict


class FeatureOracle:
    """Follows the committed records: without the ELR feature no replica becomes eligible."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._levels: dict[str, int] = {}
        self._eligible: dict[tuple[Uuid, int], tuple[int, ...]] = {}

    def committed(self, records: Sequence[Message]) -> None:
        """Check the next committed records."""
        for record in records:
            match record:
                case FeatureLevelRecord():
                    self._levels[record.name] = record.feature_level
                case PartitionChangeRecord():
                    self._look_at(record)

    def _look_at(self, record: PartitionChangeRecord) -> None:
        if record.eligible_leader_replicas is None:
            return
        where = (bytes(record.topic_id), record.partition_id)
        before = self._eligible.get(where, ())
        now = self._eligible[where] = tuple(record.eligible_leader_replicas)
        self._verdict.check(
            self._levels.get(ELR_VERSION, 0) > 0 or all(replica in before for replica in now),
            f"{ELR_VERSION} is 0, but replicas {list(now)} of partition {record.partition_id} "
            "become eligible leaders",
        )
