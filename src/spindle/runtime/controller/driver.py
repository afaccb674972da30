"""The active controller as a process sees it: decide, append, replay, wait for the commit.

Everything runs on the event loop's thread, so operations are decided one after the other, in the
order in which they arrive. Each sees the *speculative* image, which contains all records that were
appended, committed or not; its answer waits until its own records are committed. When leadership is
lost the speculative image is dropped and all waiting requests fail with NOT_CONTROLLER: nobody was
told anything that may now be undone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Protocol

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.controller.activation import activation_records
from spindle.controller.brokers import fence_stale_broker
from spindle.controller.decision import (
    MAX_RECORDS_PER_OPERATION,
    ControllerContext,
    Decision,
)
from spindle.controller.elections import balance_leaders, elect_uncleanly, elect_waiting
from spindle.controller.error_answers import error_answer
from spindle.controller.heartbeats import Heartbeats
from spindle.controller.operations import OPERATIONS, OperationContext
from spindle.controller.periodic import Schedule, Task, intervals_ms
from spindle.controller.quotas import host_names
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import MetadataImage, MetadataProvenance
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from spindle.publication.image_publisher import ImageConsumer, ImagePublisher
from spindle.publication.listener import MetadataQuorum
from spindle.publication.loader import Publication
from spindle.raft.leader import LeaderAndEpoch, NotLeader
from spindle.runtime.controller.history import ControllerHistory
from spindle.runtime.controller.host_names import FindUnresolved, unresolved_hosts
from spindle.runtime.controller.mutation_quotas import MutationQuotas, Mutations
from spindle.serving.context import RequestContext
from spindle.serving.quotas.enforcement import set_throttle_time

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 30_000
"""How long a request waits for its commit where it does not say so itself."""
_INACTIVE: Final = -1
_TRANSACTION_MARKERS: Final = (
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
)


class ControllerQuorum(MetadataQuorum, Protocol):
    """The metadata quorum, with what only its active controller asks of it."""

    @property
    def log_end_offset(self) -> int:
        """Where the next record will stand."""
        ...

    @property
    def kraft_version(self) -> int: ...

    def upgrade_kraft_version(
        self, epoch: int, version: int, *, is_validate_only: bool = False
    ) -> None:
        """Raise kraft.version as leader of `epoch`.

        Raises:
            ApiError: it cannot be raised now.
        """
        ...


@dataclass(slots=True)
class _Pending:
    last_offset: int
    committed: asyncio.Future[None]


class ControllerDriver(ImageConsumer):
    """Serves controller requests while the local node leads the metadata quorum.

    Args:
        bootstrap: the records of the formatted disk, used if the log turns out to be empty.
        clock: milliseconds of a clock that never goes back.
        unresolved: looks names of hosts up and returns those without an address.

    Attributes:
        history: what happened so far.
    """

    def __init__(
        self,
        quorum: ControllerQuorum,
        publisher: ImagePublisher,
        context: ControllerContext,
        *,
        bootstrap: Sequence[Message],
        clock: Callable[[], int],
        quotas: MutationQuotas | None = None,
        unresolved: FindUnresolved = unresolved_hosts,
    ) -> None:
        self.history = ControllerHistory()
        self._quorum = quorum
        self._unresolved = unresolved
        self._quotas = quotas or MutationQuotas(1, 1000)
        self._publisher = publisher
        self._context = context
        self._bootstrap = list(bootstrap)
        self._clock = clock
        self._heartbeats = Heartbeats(context.settings.broker_session_timeout_ms)
        self._epoch = _INACTIVE
        self._speculative = publisher.image
        self._next_offset = 0
        self._pending: deque[_Pending] = deque()
        self._schedule: Schedule | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        return self._epoch != _INACTIVE

    @property
    def epoch(self) -> int:
        """The controller epoch; -1 while another node is active."""
        return self._epoch

    @property
    def speculative_image(self) -> MetadataImage:
        """The image with everything appended so far. Only of use to the active controller."""
        return self._speculative

    def silence_ms(self) -> dict[int, int]:
        """For how long the active controller has not heard of brokers that are not fenced."""
        return self._heartbeats.silence_ms(self._clock()) if self.is_active else {}

    def start(self) -> None:
        """Follow the publisher. Call once, on the event loop's thread."""
        self._publisher.add(self)
        if self._publisher.leader.leader_id >= 0:
            self.on_leader_change(self._publisher.leader)

    def stop(self) -> None:
        """Stop serving; waiting requests fail with NOT_CONTROLLER."""
        self._publisher.remove(self)
        self._deactivate()

    async def handle(self, request: Any, context: RequestContext | None = None) -> Message:
        """Decide on a request and answer when its records are committed.

        A request refused as a whole gets an answer that says so. Without a context the request
        comes from this process itself.

        Raises:
            ApiError: NOT_CONTROLLER when this node is not (or no longer) the active controller,
                REQUEST_TIMED_OUT when the quorum does not commit in time.
        """
        api_key = request.API_KEY
        operation = OPERATIONS.get(api_key)
        if operation is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"API {api_key} is not for a controller")
        self._check_active()
        if isinstance(request, BrokerHeartbeatRequest):
            # Before anything can go wrong: a busy controller must not fence a broker that is alive.
            self._heartbeats.contact(request.broker_id, request.broker_epoch, self._clock())
        unresolved: Collection[str] = ()
        if isinstance(request, AlterClientQuotasRequest):
            unresolved = await self._unresolved(host_names(request))
            self._check_active()
        self.history.operations_started += 1
        began_s = perf_counter()
        try:
            mutations = self._quotas.begin(
                self._publisher.image.client_quotas, api_key, context, self._clock()
            )
            given = self._operation_context(request, context, mutations, unresolved)
            decision = operation(given, request)
            if decision.kraft_version is not None:
                self._quorum.upgrade_kraft_version(
                    self._epoch, decision.kraft_version, is_validate_only=request.validate_only
                )
            last_offset = self._execute(decision)
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            return error_answer(request, error)
        finally:
            self.history.operations.observe(perf_counter() - began_s)
        await self._committed(last_offset, getattr(request, "timeout_ms", 0) or DEFAULT_TIMEOUT_MS)
        response: Message = decision.response
        if mutations.wait_ms:
            set_throttle_time(response, mutations.wait_ms)
        return response

    # -------------------------------------------------------------- the quorum's side

    def on_publication(self, publication: Publication) -> None:
        if not self.is_active:
            self._speculative = publication.image

    def on_committed(self, last_offset: int) -> None:
        while self._pending and self._pending[0].last_offset <= last_offset:
            waiting = self._pending.popleft().committed
            if not waiting.done():
                waiting.set_result(None)
        if self.is_active and last_offset + 1 >= self._next_offset:
            # Nothing is in flight: both images say the same, so keep only one of them alive.
            self._next_offset = last_offset + 1
            if not self._publisher.is_in_transaction:
                self._speculative = self._publisher.image

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id != self._context.settings.node_id:
            self._deactivate()
        elif leader.epoch != self._epoch:
            self._deactivate()
            self._activate(leader.epoch)

    def _activate(self, epoch: int) -> None:
        now_ms = self._clock()
        self._epoch = epoch
        self._speculative = self._publisher.image
        self._next_offset = self._publisher.last_committed_offset + 1
        decision = activation_records(
            self._speculative,
            self._bootstrap,
            self._context.settings,
            is_in_transaction=self._publisher.is_in_transaction,
        )
        try:
            self._execute(decision)
        except ApiError as error:
            logger.warning("Controller %d could not become active: %s", self._node_id, error)
            self._deactivate()
            return
        self._heartbeats.activate(self._speculative, now_ms)
        self._schedule = Schedule(intervals_ms(self._context.settings), now_ms)
        # The predecessor may have been interrupted between two goes of elections.
        self._schedule.run_by(Task.ELECT_WAITING, now_ms)
        self._set_timer()
        logger.info("Controller %d is active in epoch %d", self._node_id, epoch)
        if self._speculative.security.acls and not self._context.settings.has_authorizer:
            logger.warning(
                "Controller %d checks no ACLs, though %d stand in the metadata",
                self._node_id,
                len(self._speculative.security.acls),
            )

    def _deactivate(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule = None
        if not self.is_active:
            return
        self._epoch = _INACTIVE
        self._speculative = self._publisher.image
        while self._pending:
            waiting = self._pending.popleft().committed
            if not waiting.done():
                waiting.set_exception(self._not_controller())
        logger.info("Controller %d is not active any more", self._node_id)

    # -------------------------------------------------------------- decide, replay, append

    def _operation_context(
        self,
        request: Message,
        context: RequestContext | None,
        mutations: Mutations,
        unresolved: Collection[str],
    ) -> OperationContext:
        own_listeners = self._context.settings.controller_listener_names
        return OperationContext(
            image=self._speculative,
            heartbeats=self._heartbeats,
            context=self._context,
            api_version=request.LAST_VERSION if context is None else context.api_version,
            next_write_offset=self._quorum.log_end_offset,
            now_ms=self._clock(),
            kraft_version=self._quorum.kraft_version,
            is_own_process=context is None,
            is_forwarded=context is None or context.listener not in own_listeners,
            charge=mutations.charge,
            unresolved_hosts=unresolved,
        )

    def _execute(self, decision: Decision[Any]) -> int:
        """Replay and append; the offset that the answer has to wait for."""
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
        if decision.leaves_elections and self._schedule is not None:
            self._schedule.run_by(Task.ELECT_WAITING, self._clock())
            self._set_timer()
        if decision.on_append is not None:
            decision.on_append(last_offset)
        return last_offset

    def _append(self, records: Sequence[Message], *, is_atomic: bool) -> None:
        # Replay first: records that contradict the image must not reach the log.
        expected_offset = self._quorum.log_end_offset
        image = self._replay(records, expected_offset)
        try:
            last_offset = self._quorum.append(self._epoch, records, is_atomic=is_atomic)
        except NotLeader:
            raise self._not_controller() from None
        except ValueError as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        first_offset = last_offset - len(records) + 1
        if first_offset != expected_offset:
            # The quorum put records of its own in between.
            image = self._replay(records, first_offset)
        self._speculative = image
        self._next_offset = last_offset + 1

    def _replay(self, records: Sequence[Message], first_offset: int) -> MetadataImage:
        delta = MetadataDelta(self._speculative)
        try:
            for offset, record in enumerate(records, first_offset):
                if not isinstance(record, _TRANSACTION_MARKERS):
                    delta.replay(record, offset)
        except ProtocolViolation as error:
            self.history.errors += 1
            logger.exception("Controller %d decided on records it cannot replay", self._node_id)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        last_offset = first_offset + len(records) - 1
        return delta.apply(MetadataProvenance(last_offset, self._epoch, self._clock()))

    async def _committed(self, last_offset: int, timeout_ms: int) -> None:
        if last_offset <= self._publisher.last_committed_offset:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(last_offset, waiting))
        try:
            await asyncio.wait_for(waiting, timeout_ms / 1000)
        except TimeoutError:
            self.history.operations_timed_out += 1
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"not committed within {timeout_ms} ms"
            ) from None

    def _check_active(self) -> None:
        if not self.is_active:
            raise self._not_controller()

    def _not_controller(self) -> ApiError:
        leader = self._quorum.leader
        if leader.leader_id >= 0 and leader.leader_id != self._node_id:
            text = f"The active controller appears to be node {leader.leader_id}."
        else:
            text = "No controller appears to be active."
        return ApiError(ErrorCode.NOT_CONTROLLER, text)

    @property
    def _node_id(self) -> int:
        return self._context.settings.node_id

    # -------------------------------------------------------------- periodic tasks

    @property
    def next_task_ms(self) -> int | None:
        """When `run_periodic_tasks` has something to do; None while another node is active."""
        return None if self._schedule is None else self._schedule.next_due_ms()

    def _set_timer(self) -> None:
        due_ms = self.next_task_ms
        if due_ms is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(1, due_ms - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self.run_periodic_tasks()
        self._set_timer()

    def run_periodic_tasks(self) -> None:
        """Do what is due now. The timer calls this; so may a test with a clock of its own."""
        if self._schedule is None:
            return
        now_ms = self._clock()
        for task in self._schedule.take_due(now_ms):
            self.history.operations_started += 1
            began_s = perf_counter()
            try:
                self._run(task, now_ms)
            except ApiError as error:
                logger.warning("Controller %d: could not %s: %s", self._node_id, task.value, error)
            finally:
                self.history.operations.observe(perf_counter() - began_s)

    def _run(self, task: Task, now_ms: int) -> None:
        if self._schedule is None:
            return
        if task is Task.NO_OP_RECORD:
            self._execute(Decision(None, [NoOpRecord()]))
            return
        settings = self._context.settings
        if task is Task.FENCE_STALE_BROKERS:
            decision = fence_stale_broker(
                self._speculative, self._heartbeats, now_ms, self._context
            )
            self.history.heartbeats_timed_out += decision.response
            expiry_ms = self._heartbeats.next_expiry_ms()
            if expiry_ms is not None:
                self._schedule.run_by(task, expiry_ms)
        elif task is Task.ELECT_PREFERRED:
            decision = balance_leaders(self._speculative, settings)
        elif task is Task.ELECT_WAITING:
            decision = elect_waiting(self._speculative, settings)
        else:
            decision = elect_uncleanly(self._speculative, settings)
        self._execute(decision)
        if decision.response:
            self._schedule.run_by(task, now_ms)
