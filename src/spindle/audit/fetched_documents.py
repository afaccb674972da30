"""JSON form of a part of a fetched replica, for the checkpoint folder."""

from pathlib import Path
from typing import Any

from spindle.audit.digests import digest_document, digest_of
from spindle.audit.fetched_replica import FetchedPart
from spindle.audit.findings import FindingKind
from spindle.audit.spark_checkpoint_format import (
    batch_document,
    batch_part,
    finding_rows,
    findings_of,
)


def fetched_document(part: FetchedPart) -> dict[str, Any]:
    """Return the result of a part as a JSON object; the path is that of the replica."""
    return {
        "end": part.end_offset,
        "highWatermark": part.high_watermark,
        "findings": finding_rows(part.findings),
        "leftOut": {kind.name: count for kind, count in part.left_out.items()},
        "batches": batch_document(part.batches),
        "digest": digest_document(part.digest),
        "bytes": part.size_bytes,
        "count": part.batch_count,
    }


def fetched_part(path: Path, document: Any) -> FetchedPart:
    """Return the part that a document holds.

    Args:
        path: the path of the replica.

    Raises:
        KeyError, TypeError, ValueError: it is not the document of a part.
    """
    return FetchedPart(
        int(document["end"]),
        int(document["highWatermark"]),
        findings_of(document["findings"]),
        {FindingKind[name]: int(count) for name, count in document["leftOut"].items()},
        batch_part(path, document["batches"]),
        digest_of(document["digest"]),
        int(document["bytes"]),
        int(document["count"]),
    )
