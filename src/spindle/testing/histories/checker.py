"""The verdict about a history: what was lost, duplicated, half visible, or taken back.

In the style of Jepsen's workloads for queues and Kafka. The rules are those of
`findings.FaultKind`. Time and memory grow with the number of events (n log n).

A record without a transaction has to be in the log if it was acknowledged. With a transaction that
was committed, all of its records have to be there; with one that was aborted, or that nobody has
asked to commit, none of them; with an unknown outcome, all or none.
"""

from itertools import chain

from spindle.testing.histories.client_history import ClientHistory
from spindle.testing.histories.committed_offsets import CommittedOffsets
from spindle.testing.histories.copies import CopyCheck
from spindle.testing.histories.deliveries import Deliveries
from spindle.testing.histories.findings import Findings, limited
from spindle.testing.histories.sent_records import SentRecords
from spindle.testing.histories.stored_records import check_logs


def check(history: ClientHistory) -> Findings:
    """Apply all rules to a history."""
    sent_records = SentRecords(history.events)
    in_logs = list(check_logs(history, sent_records))
    deliveries = Deliveries(history, sent_records)
    offsets = CommittedOffsets(history, sent_records)
    copies = [
        CopyCheck(history, copy, offsets.last_read, offsets.floors) for copy in history.copies
    ]
    faults, counts = limited(
        chain(
            in_logs,
            deliveries.faults,
            deliveries.never_delivered(),
            offsets.faults,
            *(copy.faults for copy in copies),
        )
    )
    outcomes = [
        transaction.is_committed if transaction.is_asked else False
        for transaction in sent_records.transactions.values()
    ]
    return Findings(
        faults,
        counts,
        acknowledged=sent_records.acknowledged,
        without_offset=sent_records.without_offset,
        stored=sum(map(len, history.logs.values())),
        delivered=deliveries.count,
        redelivered=deliveries.repeated,
        committed=outcomes.count(True),
        aborted=outcomes.count(False),
        undecided=outcomes.count(None),
        copied=sum(copy.copied for copy in copies),
    )
