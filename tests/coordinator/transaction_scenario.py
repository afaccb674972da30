"""A shard of transactions with a virtual clock and a log in memory.

The scenario does the driver's work. After `hold()`, appends stay under way until `commit()` or
`fail(code)`. Markers wait in `markers` until `mark` writes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.config import TransactionsConfig
from spindle.coordinator.timers import TimerQueue
from spindle.coordinator.transactions.end_txn import EndRequest
from spindle.coordinator.transactions.metadata import TransactionMetadata, TransactionState
from spindle.coordinator.transactions.records import (
    TransactionRecord,
    encode_transaction,
    parse_transaction,
)
from spindle.coordinator.transactions.shard import (
    TransactionResult,
    TransactionShard,
    TransactionTimer,
)
from spindle.coordinator.transactions.transaction_table import MarkedTransaction, TransactionalId
from spindle.protocol.message import Message
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest

START_MS = 1_700_000_000_000
P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
TX = "tx"
LAST_EPOCH = 32766
"""The last epoch that clients get."""

Producer = tuple[int, int]


class TransactionScenario:
    """One shard, its log, its clock and the markers that were asked for."""

    def __init__(
        self, *, transaction_version: int = 2, config: TransactionsConfig | None = None
    ) -> None:
        self.transaction_version = transaction_version
        self.config = config or TransactionsConfig()
        self.now_ms = START_MS
        self.log: list[TransactionRecord] = []
        self.markers: list[tuple[MarkedTransaction, list[TopicPartition]]] = []
        self.held: list[TransactionResult] | None = None
        self.answers: dict[int, Any] = {}
        self.next_id = 100
        self.has_ids = True
        self._tokens = 0
        self.start()

    def start(self) -> None:
        """Load the shard from the log, as a newly elected coordinator does."""
        self.markers.clear()
        self.held = None
        self.shard = TransactionShard(
            self.config, self._new_id, lambda: self.transaction_version, self._write_markers
        )
        self.timers: TimerQueue[TransactionTimer] = TimerQueue()
        for offset, record in enumerate(self.log):
            parsed = parse_transaction(*encode_transaction(record), offset)
            assert parsed is not None
            self.shard.replay(parsed, -1)
        self._run(self.shard.loaded)

    def _new_id(self) -> int:
        if not self.has_ids:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.next_id += 1
        return self.next_id - 1

    def _write_markers(
        self, transaction: MarkedTransaction, partitions: Sequence[TopicPartition]
    ) -> None:
        self.markers.append((transaction, list(partitions)))

    # ------------------------------------------------------------ the driver's part

    def execute(self, out: TransactionResult) -> None:
        for change in out.timers:
            self.timers.apply(change)
        for token, response in out.answers:
            assert isinstance(token, int)
            self.answers[token] = response
        if out.records and self.held is not None:
            self.held.append(out)
        elif out.records:
            self._finish(out, ErrorCode.NONE)
        self.shard.check()

    def _finish(self, out: TransactionResult, code: ErrorCode) -> None:
        outcome = TransactionResult(self.now_ms)
        if code is ErrorCode.NONE:
            base_offset = len(self.log)
            self.log += out.records
            self.shard.committed(out.records, base_offset, None, outcome)
        else:
            self.shard.failed(out.records, outcome)
        for change in outcome.timers:
            self.timers.apply(change)
        for token, response in out.answers_after_commit:
            assert isinstance(token, int)
            self.answers[token] = response if code is ErrorCode.NONE else code

    def hold(self) -> None:
        self.held = []

    def commit(self) -> None:
        """Commit what was held back."""
        self._release(ErrorCode.NONE)

    def fail(self, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Let the appends that were held back fail."""
        self._release(code)

    def _release(self, code: ErrorCode) -> None:
        held, self.held = self.held or [], None
        for out in held:
            self._finish(out, code)
        self.shard.check()

    def advance(self, by_ms: int = 0) -> None:
        """Let time pass, and fire the timers that become due."""
        end_ms = self.now_ms + by_ms
        while (next_ms := self.timers.next_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            key = self.timers.pop_due(self.now_ms)
            if key is not None:
                self._run(self.shard.on_timer, key)
        self.now_ms = end_ms

    # ------------------------------------------------------------ requests

    def ask(self, operation: Callable[[TransactionResult], Message]) -> int:
        """Send a request, and return its token. Raises ApiError if it is refused at once."""
        self._tokens += 1
        out = TransactionResult(self.now_ms)
        out.answer_after_commit(self._tokens, operation(out))
        self.execute(out)
        return self._tokens

    def markers_written(
        self, transaction: MarkedTransaction, partitions: Sequence[TopicPartition]
    ) -> None:
        self._run(self.shard.markers_written, transaction, partitions)

    def _run(self, operation: Callable[..., None], *arguments: Any) -> None:
        """Run an operation that no request waits for."""
        out = TransactionResult(self.now_ms)
        operation(*arguments, out)
        self.execute(out)

    def init(
        self, producer: Producer = (-1, -1), timeout_ms: int = 60_000, **fields: Any
    ) -> Producer | ErrorCode:
        """Send InitProducerId; return producer id and epoch, or the error."""
        request = InitProducerIdRequest(
            transactional_id=TX,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            **fields,
        )
        producer_or_error: Producer | ErrorCode = self._result(
            lambda out: self.shard.init_producer_id(request, out)
        )
        return producer_or_error

    def add(
        self, producer: Producer, *partitions: TopicPartition, version: int = 2
    ) -> ErrorCode | Producer:
        code = self._result(
            lambda out: self.shard.add_partitions(TX, producer, partitions, version, out)
        )
        return code if isinstance(code, ErrorCode) else ErrorCode.NONE

    def end(
        self, producer: Producer, *, is_commit: bool = True, version: int = 2
    ) -> Producer | ErrorCode:
        """Send EndTxn; return the producer id and epoch of the next transaction, or the error."""
        request = EndRequest(*producer, is_commit, version)
        producer_or_error: Producer | ErrorCode = self._result(
            lambda out: self.shard.end_transaction(TX, request, out)
        )
        return producer_or_error

    def _result(self, operation: Callable[[TransactionResult], Message]) -> Any:
        try:
            token = self.ask(operation)
        except ApiError as error:
            return error.code
        answer = self.answers.get(token)
        if answer is None or isinstance(answer, ErrorCode):
            return answer
        if answer.error_code:
            return ErrorCode(answer.error_code)
        if hasattr(answer, "producer_id"):
            return answer.producer_id, answer.producer_epoch
        return ErrorCode.NONE

    def mark(self) -> list[tuple[int, int, bool]]:
        """Write all markers; return producer id, epoch and result of each transaction."""
        written, self.markers = self.markers, []
        for transaction, partitions in written:
            self.markers_written(transaction, partitions)
        self.advance()
        return [(m.producer_id, m.producer_epoch, m.is_commit) for m, _ in written]

    # ------------------------------------------------------------ state

    @property
    def id(self) -> TransactionalId:
        transactional_id = self.shard.ids.find(TX)
        assert transactional_id is not None
        return transactional_id

    @property
    def metadata(self) -> TransactionMetadata:
        return self.id.metadata

    @property
    def state(self) -> TransactionState:
        return self.metadata.state

    def set_epoch(self, epoch: int) -> None:
        """Let the producer have this epoch, as after many transactions."""
        last = self.log[-1].metadata
        assert last is not None
        self.log.append(TransactionRecord(TX, replace(last, producer_epoch=epoch)))
        self.start()
