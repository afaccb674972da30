"""Audit of a replica on another machine: its batches are fetched from the broker that has it.

A consumer may fetch from any replica in sync, not only from the leader, since Fetch version 11
(KIP-392). The broker sends the bytes of its files as they are, up to its high watermark. Indexes,
snapshots and checkpoints are not checked.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from spindle.audit.batch_checks import BatchChecks
from spindle.audit.batch_digests import add_batches
from spindle.audit.digests import DigestBuilder, LogDigest
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.merge import JoinedBatches
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import CheckpointedOffsets, ReplicaPlace
from spindle.audit.segment_part import BatchPart
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.fetching import FetchedBatches, FetchLimits, fetch_request, fetched_batches
from spindle.columnar.header_table import BASE_OFFSET, LAST_DELTA, SIZE_BYTES
from spindle.columnar.headers import HeaderWalk
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.protocol import versions
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.sentinels import EARLIEST, READ_UNCOMMITTED

_LIMITS: Final = FetchLimits(max_bytes=4 << 20, max_wait_ms=100)
_THROTTLED_ANSWERS: Final = 20
"""Maximum number of throttled responses in a row; after that, the broker counts as unavailable."""
_STARTS: Final = 5
"""Retries after OFFSET_OUT_OF_RANGE caused by retention."""
_FIRST_OFFSET: Final = -(2**63)
_LAST_OFFSET: Final = 2**63 - 1


def audit_fetched_replica(
    client: WireClient,
    broker: BrokerAddress,
    place: ReplicaPlace,
    topic_id: Uuid,
    *,
    on_bytes: Callable[[int], None] = lambda size_bytes: None,
) -> AuditedReplica:
    """Fetch a replica from its log start to the high watermark at the beginning, and check it.

    Args:
        client: finds the leader, which returns the log start.
        place: the replica; its path names the broker.

    Raises:
        ApiError: the broker has no such replica, or refused.
        ClientError: it could not be asked.
    """
    start = client.list_offsets({place.partition: EARLIEST})[place.partition].offset
    wanted = ReplicaRange(start, None, is_first=True)
    part = fetch_range(client, broker, place, topic_id, wanted, on_bytes=on_bytes)
    return join_ranges(place, topic_id, [wanted], [part])


class ReplicaRange(NamedTuple):
    """A part of a replica: the batches with base offsets in [start, end).

    Attributes:
        end: None for the high watermark when the fetching begins.
        is_first: batches that begin before the range belong to it, too.
    """

    start: int
    end: int | None
    is_first: bool


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """The result of a range: findings, and the state of its batches.

    Attributes:
        end_offset: the offset after the last one that was fetched.
        high_watermark: of the replica when the fetching began, but at most the end of the range.
        left_out: findings beyond those that are listed, by kind.
    """

    end_offset: int
    high_watermark: int
    findings: tuple[AuditFinding, ...]
    left_out: Mapping[FindingKind, int]
    batches: BatchPart
    digest: LogDigest
    size_bytes: int
    batch_count: int


def fetch_range(
    client: WireClient,
    broker: BrokerAddress,
    place: ReplicaPlace,
    topic_id: Uuid,
    wanted: ReplicaRange,
    *,
    on_bytes: Callable[[int], None] = lambda size_bytes: None,
) -> FetchedPart:
    """Fetch a part of a replica, and check it.

    Raises:
        ApiError: the broker has no such replica, or refused.
        ClientError: it could not be asked.
    """
    for attempt in range(_STARTS):
        try:
            return _Fetching(client, broker, place, topic_id, wanted, on_bytes).run()
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or attempt == _STARTS - 1:
                raise
        earliest = client.list_offsets({place.partition: EARLIEST})[place.partition].offset
        if earliest <= wanted.start and not wanted.is_first:
            return _empty(wanted.start)  # the replica is behind its leader
        start = max(earliest, wanted.start)
        if wanted.end is not None and start >= wanted.end:
            return _empty(wanted.end)  # retention removed it
        wanted = wanted._replace(start=start)
    raise AssertionError("the last attempt returns or raises")


def _empty(offset: int) -> FetchedPart:
    batches = BatchPart(None, None, False, ())
    return FetchedPart(offset, offset, (), {}, batches, LogDigest({}), 0, 0)


def join_ranges(
    place: ReplicaPlace,
    topic_id: Uuid,
    ranges: Sequence[ReplicaRange],
    parts: Sequence[FetchedPart],
) -> AuditedReplica:
    """Return the result for a replica from its parts, in their order."""
    findings = Collector(str(place.path))
    batches = JoinedBatches(findings)
    digest = DigestBuilder()
    high_watermark = end = ranges[0].start
    is_going_on = True
    for wanted, part in zip(ranges, parts, strict=True):
        if is_going_on:
            high_watermark, end = part.high_watermark, max(end, part.end_offset)
        is_going_on = is_going_on and wanted.end is not None and high_watermark >= wanted.end
        # A batch at the border may be checked on both sides.
        new = [finding for finding in part.findings if finding not in findings.found]
        findings.take(tuple(new), part.left_out)
        if part.batches.first_offset is not None:
            batches.take(place.path, part.batches.first_offset, part.batches)
        digest.take(part.digest)
    # Brokers do not send clean offsets, so an old compaction may explain a gap.
    is_compacted = batches.is_rewritten or bool(batches.gaps) or place.is_compacted is True
    return AuditedReplica(
        replace(place, checkpointed=CheckpointedOffsets(high_watermark=high_watermark)),
        topic_id,
        ranges[0].start if batches.first_offset is None else batches.first_offset,
        end,
        batches.epoch_runs[-1].epoch if batches.epoch_runs else -1,
        sum(part.size_bytes for part in parts),
        sum(part.batch_count for part in parts),
        tuple(findings.found),
        digest.digest(),
        is_compacted,
        findings.left_out.total(),
        batches.last_epochs(),
    )


@dataclass(slots=True)
class _Fetching:
    """One pass over a range of a replica."""

    client: WireClient
    broker: BrokerAddress
    place: ReplicaPlace
    topic_id: Uuid
    wanted: ReplicaRange
    on_bytes: Callable[[int], None]
    findings: Collector = field(init=False)
    digest: DigestBuilder = field(default_factory=DigestBuilder)
    batches: JoinedBatches = field(init=False)
    size_bytes: int = 0
    batch_count: int = 0

    def __post_init__(self) -> None:
        self.findings = Collector(str(self.place.path))
        self.batches = JoinedBatches(self.findings)

    def run(self) -> FetchedPart:
        """Fetch the range."""
        position, until = self.wanted.start, self.wanted.end
        fetched = self._fetch(position)
        high_watermark = fetched.high_watermark
        end = high_watermark if until is None else min(until, high_watermark)
        while position < end:
            following = self._check(fetched, position)
            if following is None:
                break
            position = following
            if position < end:
                fetched = self._fetch(position)
        batches = self.batches
        return FetchedPart(
            position,
            end,
            tuple(_without_position(finding) for finding in self.findings.found),
            dict(self.findings.left_out),
            BatchPart(
                batches.first_offset,
                batches.next_offset,
                batches.is_rewritten,
                tuple(batches.epoch_runs),
                tuple(batches.gaps),
            ),
            self.digest.digest(),
            self.size_bytes,
            self.batch_count,
        )

    def _fetch(self, offset: int) -> FetchedBatches:
        request = fetch_request(
            self.place.partition,
            self.topic_id,
            offset,
            _LIMITS,
            isolation_level=READ_UNCOMMITTED,
        )
        for _ in range(_THROTTLED_ANSWERS):
            answer = self.client.ask(
                request,
                FetchResponse,
                broker=self.broker,
                first_version=versions.FETCH_FROM_FOLLOWER,
                wait_ms=_LIMITS.max_wait_ms,
            )
            fetched = fetched_batches(self.place.partition, answer)
            if not fetched.throttle_ms:
                return fetched
            time.sleep(fetched.throttle_ms / 1000)
        subject = f"fetch of partition {self.place.partition}"
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, subject)

    def _check(self, fetched: FetchedBatches, offset: int) -> int | None:
        """Check the batches of a response; return the offset after them, None if there is none."""
        data = memoryview(fetched.records)
        walk = HeaderWalk(_FIRST_OFFSET, _LAST_OFFSET, check_crcs=True)
        checks: BatchChecks | None = None
        following: int | None = None
        while walk.position < len(data):
            before = walk.position
            fields = walk.fields(data[before:], before, len(data))
            if fields.shape[1]:
                # Segments are not visible in a response: each response counts as one.
                base = int(fields[BASE_OFFSET, 0])
                checks = checks or BatchChecks(self.findings, self.place.path, base)
                checks.window(fields)
                own = self._own(fields)
                if own.shape[1]:
                    self._note(own)
                following = self._following(fields, fetched.high_watermark) or following
            if walk.finding or walk.position == before or walk.is_torn:
                break
        if walk.finding:
            evidence = f"the broker sends bytes that are not a batch: {walk.finding}"
            self.findings.add(FindingKind.BATCH_HEADER, self.place.path, evidence, offset=following)
            return None
        if following is None or following <= offset:
            evidence = (
                f"the broker sends no batch at offset {offset}, below its high watermark "
                f"{fetched.high_watermark}"
            )
            self.findings.add(FindingKind.LOG_SHORT, self.place.path, evidence, offset=offset)
            return None
        return following

    def _following(self, fields: Any, high_watermark: int) -> int | None:
        """Return the offset after batches; None if it is known only from a damaged batch."""
        end = self.wanted.end
        limit = high_watermark if end is None else min(end, high_watermark)
        inside = fields[:, fields[BASE_OFFSET] < limit]
        if inside.shape[1]:
            return int((inside[BASE_OFFSET] + inside[LAST_DELTA]).max()) + 1
        return end

    def _own(self, fields: Any) -> Any:
        """Return the batches of this range; adjacent ranges have the others of a response.

        A batch in the middle with an offset outside is damaged, and stays.
        """
        bases = fields[BASE_OFFSET]
        if self.wanted.end is not None:
            is_inside = np.flatnonzero(bases < self.wanted.end)
            fields = fields[:, : int(is_inside[-1]) + 1 if is_inside.size else 0]
        if not self.wanted.is_first and fields.shape[1]:
            base = int(fields[BASE_OFFSET, 0])
            if base < self.wanted.start <= base + int(fields[LAST_DELTA, 0]):
                fields = fields[:, 1:]
        return fields

    def _note(self, fields: Any) -> None:
        quiet = BatchChecks(Collector(), self.place.path, int(fields[BASE_OFFSET, 0]))
        quiet.window(fields)
        part = quiet.part()
        self.batches.take(self.place.path, part.first_offset or 0, part)
        add_batches(self.digest, fields)
        self.batch_count += fields.shape[1]
        size_bytes = int(fields[SIZE_BYTES].sum())
        self.size_bytes += size_bytes
        self.on_bytes(size_bytes)


def _without_position(finding: AuditFinding) -> AuditFinding:
    """Return a finding without the byte position, which is relative to the response."""
    return replace(finding, position=None)
