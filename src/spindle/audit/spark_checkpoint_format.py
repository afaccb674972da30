"""JSON form of a segment's part, for the checkpoint folder of an audit on Spark."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spindle.audit.digests import digest_document, digest_of
from spindle.audit.findings import AuditFinding, FindingKind
from spindle.audit.index_files import IndexTail
from spindle.audit.replica import SegmentTask
from spindle.audit.segment_part import (
    BatchPart,
    EpochRun,
    LastBatch,
    Marker,
    OffsetGap,
    ProducerCut,
    ProducerPart,
    SeenMarker,
    SegmentPart,
    TransactionPart,
)
from spindle.log.formats.names import INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from spindle.log.formats.transaction_index import AbortedTransaction


def part_document(part: SegmentPart) -> dict[str, Any]:
    """Return the result of a part as a JSON object, without paths, which the task has."""
    transactions = part.transactions
    entries = transactions.entries
    return {
        "findings": finding_rows(part.findings),
        "leftOut": {kind.name: count for kind, count in part.left_out.items()},
        "log": batch_document(part.batches),
        "producers": {
            "firstOffset": part.producers.first_offset,
            "cuts": [[cut.offset, _newest(cut.newest)] for cut in part.producers.cuts],
            "newest": _newest(part.producers.newest),
        },
        "transactions": {
            "entries": None if entries is None else [list(entry) for entry in entries],
            "lastOffset": transactions.last_offset,
            "markers": [
                [list(marker.marker), marker.began_at, marker.is_first, marker.open_from]
                for marker in transactions.markers
            ],
            "ended": list(transactions.ended.items()),
            "stillOpen": list(transactions.still_open.items()),
            "begun": list(transactions.begun.items()),
        },
        "digest": digest_document(part.digest),
        "bytes": part.size_bytes,
        "batches": part.batch_count,
        "indexTail": None if part.index_tail is None else list(part.index_tail[1:]),
    }


def finding_rows(findings: Iterable[AuditFinding]) -> list[list[Any]]:
    """Return findings as rows for JSON."""
    return [
        [
            finding.kind.name,
            finding.path,
            finding.evidence,
            finding.position,
            finding.offset,
            finding.replica,
        ]
        for finding in findings
    ]


def findings_of(rows: Any) -> tuple[AuditFinding, ...]:
    """Return the findings that rows of JSON hold.

    Raises:
        KeyError, TypeError, ValueError: they are no such rows.
    """
    return tuple(AuditFinding(FindingKind[kind], *rest) for kind, *rest in rows)


def batch_document(batches: BatchPart) -> dict[str, Any]:
    """Return the state of batches for JSON."""
    return {
        "offsets": [batches.first_offset, batches.next_offset],
        "isRewritten": batches.is_rewritten,
        "epochs": [list(run[1:]) for run in batches.epoch_runs],
        "gaps": [list(gap[1:]) for gap in batches.gaps],
    }


def batch_part(path: Path, document: Any) -> BatchPart:
    """Return the state of batches in a document.

    Raises:
        KeyError, TypeError, ValueError: it is not such a document.
    """
    first, following = document["offsets"]
    runs = tuple(EpochRun(path, *run) for run in document["epochs"])
    gaps = tuple(OffsetGap(path, *gap) for gap in document["gaps"])
    return BatchPart(first, following, bool(document["isRewritten"]), runs, gaps)


def _newest(newest: Any) -> list[list[int]]:
    return [[producer_id, *last] for producer_id, last in newest.items()]


def segment_part(task: SegmentTask, document: Any) -> SegmentPart:
    """Return the part that a document holds.

    Raises:
        KeyError, TypeError, ValueError: it is not such a document.
    """
    path = task.segment.path
    producers, transactions = document["producers"], document["transactions"]
    entries = transactions["entries"]
    tail = document["indexTail"]
    return SegmentPart(
        path,
        task.segment.base_offset,
        findings_of(document["findings"]),
        {FindingKind[name]: int(count) for name, count in document["leftOut"].items()},
        batch_part(path, document["log"]),
        ProducerPart(
            producers["firstOffset"],
            tuple(ProducerCut(offset, _last(newest)) for offset, newest in producers["cuts"]),
            _last(producers["newest"]),
        ),
        TransactionPart(
            path.with_suffix(TRANSACTION_INDEX_SUFFIX),
            task.segment.base_offset,
            None if entries is None else [AbortedTransaction(*entry) for entry in entries],
            int(transactions["lastOffset"]),
            tuple(
                SeenMarker(Marker(*marker), began_at, is_first, open_from)
                for marker, began_at, is_first, open_from in transactions["markers"]
            ),
            dict(transactions["ended"]),
            dict(transactions["stillOpen"]),
            dict(transactions["begun"]),
        ),
        digest_of(document["digest"]),
        int(document["bytes"]),
        int(document["batches"]),
        index_tail=None if tail is None else IndexTail(path.with_suffix(INDEX_SUFFIX), *tail),
    )


def _last(newest: Any) -> dict[int, LastBatch]:
    return {producer_id: LastBatch(*last) for producer_id, *last in newest}
