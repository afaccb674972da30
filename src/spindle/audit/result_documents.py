"""JSON form of the result of one replica's audit.

The document is stored in a progress file, or sent from the machine that has the disk to the one
that joins the results. It does not contain the place, which the reader has from its own listing.
"""

from typing import Any

from spindle.audit.digests import digest_document, digest_of
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.spark_checkpoint_format import finding_rows, findings_of


def result_document(replica: AuditedReplica) -> dict[str, Any]:
    """Return the result of an audit for JSON."""
    return {
        "topicId": None if replica.topic_id is None else replica.topic_id.hex(),
        "startOffset": replica.start_offset,
        "endOffset": replica.end_offset,
        "latestEpoch": replica.latest_epoch,
        "bytes": replica.size_bytes,
        "batches": replica.batch_count,
        "findings": finding_rows(replica.findings),
        "digest": None if replica.digest is None else digest_document(replica.digest),
        "isCompacted": replica.is_compacted,
        "leftOut": replica.left_out,
        "epochs": [list(epoch) for epoch in replica.epochs],
        "hasGaps": replica.has_gaps,
        "firstEpochOffset": replica.first_epoch_offset,
    }


def audited_replica(place: ReplicaPlace, document: Any) -> AuditedReplica:
    """Return the result that a document holds.

    Raises:
        KeyError, TypeError, ValueError: it is not such a document.
    """
    topic_id, digest = document["topicId"], document["digest"]
    first_epoch_offset = document["firstEpochOffset"]
    return AuditedReplica(
        place,
        None if topic_id is None else bytes.fromhex(topic_id),
        int(document["startOffset"]),
        int(document["endOffset"]),
        int(document["latestEpoch"]),
        int(document["bytes"]),
        int(document["batches"]),
        findings_of(document["findings"]),
        None if digest is None else digest_of(digest),
        bool(document["isCompacted"]),
        int(document["leftOut"]),
        tuple((int(e), int(first), int(last)) for e, first, last in document["epochs"]),
        bool(document["hasGaps"]),
        None if first_epoch_offset is None else int(first_epoch_offset),
    )
