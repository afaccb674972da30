"""Audit of a replica on another machine: its batches are fetched from the broker that has it.

A consumer may fetch from any replica in sync, not only from the leader, since Fetch version 11
(KIP-392). The broker sends the bytes of its files as they are, up to its high watermark. Indexes,
snapshots and checkpoints stay unseen.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spindle.audit.batch_checks import BatchChecks
from spindle.audit.digests import DigestBuilder
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.log_join import JoinedBatches
from spindle.audit.replica import AuditedReplica, CheckpointedOffsets, ReplicaPlace
from spindle.client.cluster import BrokerAddress
from spindle.client.fetching import FetchedBatches, FetchLimits, fetch_request, fetched_batches
from spindle.client.offsets import EARLIEST, READ_UNCOMMITTED
from spindle.client.wire.cluster import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.pipeline.records.headers import BASE_OFFSET, SIZE_BYTES, HeaderWalk
from spindle.pipeline.records.memory import address_of
from spindle.protocol.messages.fetch import FetchResponse

_FROM_FOLLOWERS: Final = 11
"""The first version of Fetch that a follower answers to a consumer."""
_LIMITS: Final = FetchLimits(max_bytes=4 << 20, max_wait_ms=100)
_THROTTLED_ANSWERS: Final = 20
"""One after the other; a broker that throttles a client for longer gives it nothing at all."""
_STARTS: Final = 5
"""Retention may remove the start of a log between two requests, but not again and again."""
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
        client: knows the cluster; it finds the leader, which tells where the log starts.
        place: what is known of the replica; its path names the broker.

    Raises:
        ApiError: the broker has no such replica, or refused.
        ClientError: it could not be asked.
    """
    for attempt in range(_STARTS):
        start = client.list_offsets({place.partition: EARLIEST})[place.partition].offset
        try:
            return _Fetching(client, broker, place, topic_id, on_bytes).run(start)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or attempt == _STARTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


@dataclass(slots=True)
class _Fetching:
    """One pass over a replica."""

    client: WireClient
    broker: BrokerAddress
    place: ReplicaPlace
    topic_id: Uuid
    on_bytes: Callable[[int], None]
    findings: Collector = field(init=False)
    digest: DigestBuilder = field(default_factory=DigestBuilder)
    batches: JoinedBatches = field(init=False)
    size_bytes: int = 0
    batch_count: int = 0

    def __post_init__(self) -> None:
        self.findings = Collector(str(self.place.path))
        self.batches = JoinedBatches(self.findings)

    def run(self, start: int) -> AuditedReplica:
        """Fetch from an offset on."""
        fetched = self._fetch(start)
        end = high_watermark = fetched.high_watermark
        position = start
        while position < end:
            following = self._check(fetched, position)
            if following is None:
                break
            position = following
            if position < end:
                fetched = self._fetch(position)
        batches = self.batches
        is_compacted = batches.has_holes or self.place.is_compacted is True
        return AuditedReplica(
            replace(self.place, checkpointed=CheckpointedOffsets(high_watermark=high_watermark)),
            self.topic_id,
            start if batches.first_offset is None else batches.first_offset,
            position,
            batches.epoch_runs[-1].epoch if batches.epoch_runs else -1,
            self.size_bytes,
            self.batch_count,
            tuple(_without_position(each) for each in self.findings.found),
            self.digest.digest(),
            is_compacted,
            self.findings.left_out.total(),
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
                first_version=_FROM_FOLLOWERS,
                wait_ms=_LIMITS.max_wait_ms,
            )
            fetched = fetched_batches(self.place.partition, answer)
            if not fetched.throttle_ms:
                return fetched
            time.sleep(fetched.throttle_ms / 1000)
        subject = f"fetch of partition {self.place.partition}"
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, subject)

    def _check(self, fetched: FetchedBatches, offset: int) -> int | None:
        """Check the batches of an answer; return the offset after them, None if there is none."""
        data = memoryview(fetched.records)
        walk = HeaderWalk(_FIRST_OFFSET, _LAST_OFFSET, check_crcs=True)
        address = address_of(data) if len(data) else 0
        checks: BatchChecks | None = None
        while walk.position < len(data):
            before = walk.position
            fields = walk.fields(address + before, len(data) - before, before, len(data))
            if fields.shape[1]:
                # Segments do not show on the wire: each answer counts as one.
                checks = checks or BatchChecks(
                    self.findings, self.place.path, int(fields[BASE_OFFSET, 0])
                )
                checks.window(fields)
                self._note(fields)
            if walk.finding or walk.position == before or walk.is_torn:
                break
        if checks is not None:
            part = checks.part()
            self.batches.take(self.place.path, part.first_offset or 0, part)
        following = offset if checks is None else self.batches.next_offset
        if walk.finding:
            evidence = f"the broker sends bytes that are no batch: {walk.finding}"
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

    def _note(self, fields: Any) -> None:
        self.digest.window(fields)
        self.batch_count += fields.shape[1]
        size_bytes = int(fields[SIZE_BYTES].sum())
        self.size_bytes += size_bytes
        self.on_bytes(size_bytes)


def _without_position(finding: AuditFinding) -> AuditFinding:
    """Return a finding without the byte, which counts from the start of an answer."""
    return replace(finding, position=None)
