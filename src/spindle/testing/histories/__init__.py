"""Histories of clients, and the check of what a cluster has promised them.

See docs/guide/testing.md.
"""

from spindle.common.ids import TopicPartition
from spindle.testing.histories.checker import check
from spindle.testing.histories.client_history import ClientHistory, Copy
from spindle.testing.histories.events import (
    Acknowledged,
    Assigned,
    CommitAsked,
    Delivered,
    NumberedRecord,
    OffsetCommitted,
    OffsetRead,
    OffsetsAsked,
    OffsetSent,
    RecordSent,
    TransactionEnded,
)
from spindle.testing.histories.findings import FaultKind, Findings, HistoryFault

__all__ = [
    "Acknowledged",
    "Assigned",
    "ClientHistory",
    "CommitAsked",
    "Copy",
    "Delivered",
    "FaultKind",
    "Findings",
    "HistoryFault",
    "NumberedRecord",
    "OffsetCommitted",
    "OffsetRead",
    "OffsetSent",
    "OffsetsAsked",
    "RecordSent",
    "TopicPartition",
    "TransactionEnded",
    "check",
]
