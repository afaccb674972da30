"""The metadata log as the active controller sees it: all appended records, committed or not.

Records are replayed on the *speculative* image before they are appended, so that records which
contradict it never reach the log. Requests wait here until their records are committed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.controller.decision import MAX_RECORDS_PER_OPERATION, Decision
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import MetadataImage, MetadataProvenance
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from spindle.protocol.sentinels import NO_LEADER_EPOCH
from spindle.publication.publishers import ImagePublisher
from spindle.raft.ready import LeaderAndEpoch, NotLeader
from spindle.runtime.controller.controller_counters import ControllerHistory

logger = logging.getLogger(__name__)

_TRANSACTION_MARKERS: Final = (
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
)


class ControllerQuorum(Protocol):
    """The metadata quorum, as its active controller uses it."""

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def kraft_version(self) -> int: ...

    def append(
        self, epoch: int, records: Sequence[Message], *, metadata_version: int, is_atomic: bool
    ) -> int:
        """Schedule an append as leader of `epoch`; return the offset of the last record.

        Atomic records stay in one batch.

        Args:
            metadata_version: the level before the first record.

        Raises:
            NotLeader: the local node does not lead `epoch` (any more).
            ValueError: atomic records that do not fit into one batch of 8 MiB.
        """
        ...

    def upgrade_kraft_version(
        self, epoch: int, version: int, *, is_validate_only: bool = False
    ) -> None:
        """Raise kraft.version as leader of `epoch`.

        Raises:
            ApiError: it cannot be raised now.
        """
        ...

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch` in a separate step, after the current one."""
        ...


@dataclass(slots=True)
class _Pending:
    last_offset: int
    committed: asyncio.Future[None]


class SpeculativeLog:
    """Appends the records of the active controller.

    Attributes:
        epoch: epoch of the active controller; -1 while another node is active.
        image: the image with all appended records; the committed image while another is active.
    """

    def __init__(
        self,
        quorum: ControllerQuorum,
        publisher: ImagePublisher,
        node_id: int,
        clock: Callable[[], int],
        history: ControllerHistory,
    ) -> None:
        self.epoch = NO_LEADER_EPOCH
        self.image = publisher.image
        self._quorum = quorum
        self._publisher = publisher
        self._node_id = node_id
        self._clock = clock
        self._history = history
        self._next_offset = 0
        self._pending: deque[_Pending] = deque()

    @property
    def is_active(self) -> bool:
        return self.epoch != NO_LEADER_EPOCH

    def begin(self, epoch: int) -> None:
        """Start from the committed image as the active controller of `epoch`."""
        self.epoch = epoch
        self.image = self._publisher.image
        self._next_offset = self._publisher.last_committed_offset + 1

    def end(self) -> None:
        """Drop what is not committed; requests that wait for it fail with NOT_CONTROLLER."""
        self.epoch = NO_LEADER_EPOCH
        self.image = self._publisher.image
        while self._pending:
            waiting = self._pending.popleft().committed
            if not waiting.done():
                waiting.set_exception(self.not_controller())

    def not_controller(self) -> ApiError:
        """Return the error for a request that this node cannot serve."""
        leader = self._quorum.leader
        if leader.leader_id >= 0 and leader.leader_id != self._node_id:
            text = f"The active controller appears to be node {leader.leader_id}."
        else:
            text = "No controller appears to be active."
        return ApiError(ErrorCode.NOT_CONTROLLER, text)

    # -------------------------------------------------------------- the committed part

    def published(self, image: MetadataImage) -> None:
        """Follow the committed image while another node is active."""
        if not self.is_active:
            self.image = image

    def committed(self, last_offset: int) -> None:
        """Answer the requests whose records end at `last_offset` or before."""
        while self._pending and self._pending[0].last_offset <= last_offset:
            waiting = self._pending.popleft().committed
            if not waiting.done():
                waiting.set_result(None)
        if self.is_active and last_offset + 1 >= self._next_offset:
            # No append is open: both images are equal, so keep only one.
            self._next_offset = last_offset + 1
            if not self._publisher.is_in_transaction:
                self.image = self._publisher.image

    async def wait_committed(self, last_offset: int, timeout_ms: int) -> None:
        """Return when everything up to `last_offset` (inclusive) is committed.

        Raises:
            ApiError: NOT_CONTROLLER when the leadership is lost before, REQUEST_TIMED_OUT.
        """
        if last_offset <= self._publisher.last_committed_offset:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(last_offset, waiting))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiting
        except TimeoutError:
            self._history.operations_timed_out += 1
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"not committed within {timeout_ms} ms"
            ) from None

    # -------------------------------------------------------------- replay, append

    def append(self, decision: Decision[Any]) -> int:
        """Replay and append the records of a decision; return the offset to wait for.

        Raises:
            ApiError: NOT_CONTROLLER without the leadership, UNKNOWN_SERVER_ERROR for records that
                do not fit the image or, where they are atomic, one batch.
        """
        records = decision.records
        if decision.is_atomic and len(records) > MAX_RECORDS_PER_OPERATION:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(records)} records cannot be one batch: at most {MAX_RECORDS_PER_OPERATION}",
            )
        for start in range(0, len(records), MAX_RECORDS_PER_OPERATION):
            part = records[start : start + MAX_RECORDS_PER_OPERATION]
            self._append(part, is_atomic=decision.is_atomic)
        last_offset = self._next_offset - 1
        if decision.on_append is not None:
            decision.on_append(last_offset)
        return last_offset

    def _append(self, records: Sequence[Message], *, is_atomic: bool) -> None:
        expected_offset = self._quorum.log_end_offset
        image = self._replay(records, expected_offset)
        try:
            last_offset = self._quorum.append(
                self.epoch,
                records,
                metadata_version=self.image.metadata_version,
                is_atomic=is_atomic,
            )
        except NotLeader:
            raise self.not_controller() from None
        except ValueError as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        first_offset = last_offset - len(records) + 1
        if first_offset != expected_offset:
            # The quorum has appended records of its own in between.
            image = self._replay(records, first_offset)
        self.image = image
        self._next_offset = last_offset + 1

    def _replay(self, records: Sequence[Message], first_offset: int) -> MetadataImage:
        delta = MetadataDelta(self.image)
        try:
            for offset, record in enumerate(records, first_offset):
                if not isinstance(record, _TRANSACTION_MARKERS):
                    delta.replay(record, offset)
        except ProtocolViolation as error:
            self._history.errors += 1
            logger.exception("Controller %d decided on records it cannot replay", self._node_id)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        last_offset = first_offset + len(records) - 1
        return delta.apply(MetadataProvenance(last_offset, self.epoch, self._clock()))
