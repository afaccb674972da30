"""The active controller of a process: decide, append, replay, wait for the commit.

Everything runs on the event loop's thread, so operations are decided one after the other, in the
order in which they arrive. Each sees the *speculative* image, which contains all appended records,
committed or not; its response waits until its own records are committed. When this node loses the
leadership, it drops the speculative image and fails all waiting requests with NOT_CONTROLLER. So no
change that a client saw confirmed is lost.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import Any, Final

from spindle.authorization.access import FULL_ACCESS, Access
from spindle.authorization.authorizer import Authorizer
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.log_throttle import LogThrottle
from spindle.controller.activation import activation_records
from spindle.controller.broker_sessions import BrokerHeartbeatManager
from spindle.controller.decision import ControllerContext, Decision, OperationContext, Requester
from spindle.controller.error_responses import error_answer
from spindle.controller.operations import OPERATIONS
from spindle.controller.quotas import host_names
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.protocol.messages.broker_registration import BrokerRegistrationRequest
from spindle.publication.loader import Publication
from spindle.publication.publishers import ImagePublisher, MetadataPublisher
from spindle.raft.ready import LeaderAndEpoch
from spindle.runtime.controller.controller_counters import ControllerHistory
from spindle.runtime.controller.host_names import FindUnresolved, HostNames
from spindle.runtime.controller.mutation_quotas import MutationQuotas, Mutations
from spindle.runtime.controller.periodic_tasks import PeriodicTasks
from spindle.runtime.controller.speculative_log import ControllerQuorum, SpeculativeLog
from spindle.serving.context import RequestContext
from spindle.serving.quotas.enforcement import set_throttle_time

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 30_000
"""Time that a request waits for its commit, if it has no timeout of its own."""


class ControllerDriver(MetadataPublisher):
    """Serves controller requests while the local node leads the metadata quorum.

    Args:
        bootstrap: reads the records of the bootstrap snapshot; called if the log is empty.
        clock: milliseconds of a monotonic clock.
        wall_clock: milliseconds since the epoch.
        authorizer: decides about the topics and other resources of a client's request. The
            caller has checked the request as a whole.
        unresolved: looks up host names and returns those without an address; None uses the system's
            resolver.

    Attributes:
        history: counters of the decisions.
        tasks: the periodic tasks of the active controller.
    """

    def __init__(
        self,
        quorum: ControllerQuorum,
        publisher: ImagePublisher,
        context: ControllerContext,
        *,
        bootstrap: Callable[[], Sequence[Message]],
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        authorizer: Authorizer,
        quotas: MutationQuotas | None = None,
        unresolved: FindUnresolved | None = None,
    ) -> None:
        self.history = ControllerHistory()
        self._quorum = quorum
        self._unresolved = unresolved or HostNames().unresolved
        self._quotas = quotas or MutationQuotas(1, 1000)
        self._publisher = publisher
        self._context = context
        self._authorizer = authorizer
        self._bootstrap = bootstrap
        self._clock = clock
        self._wall_clock = wall_clock
        self._refusals = LogThrottle(clock)
        self._heartbeats = BrokerHeartbeatManager(context.settings.broker_session_timeout_ms)
        self._log = SpeculativeLog(quorum, publisher, context.settings.node_id, clock, self.history)
        self.tasks = PeriodicTasks(
            context,
            self._heartbeats,
            lambda: self._log.image,
            self._execute,
            lambda: publisher.last_committed_offset,
            clock,
            wall_clock,
            self.history,
        )

    @property
    def is_active(self) -> bool:
        return self._log.is_active

    @property
    def epoch(self) -> int:
        """The controller epoch; -1 while another node is active."""
        return self._log.epoch

    @property
    def speculative_image(self) -> MetadataImage:
        """The image with all appended records. Only valid on the active controller."""
        return self._log.image

    def silence_ms(self) -> dict[int, int]:
        """Return the time in ms since the last heartbeat of each unfenced broker."""
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

    # -------------------------------------------------------------- requests

    async def handle(self, request: Any, context: RequestContext | None = None) -> Message:
        """Decide on a request and answer when its records are committed.

        A request that is refused as a whole gets an answer with the error. Without a context, the
        request comes from this process itself.

        Raises:
            ApiError: NOT_CONTROLLER if this node is not (or no longer) the active controller,
                REQUEST_TIMED_OUT if the quorum does not commit in time.
        """
        api_key = request.API_KEY
        operation = OPERATIONS.get(api_key)
        if operation is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"API {api_key} is not for a controller")
        self._check_active()
        if isinstance(request, BrokerHeartbeatRequest):
            # Record the heartbeat first: a busy controller must not fence a live broker.
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
                    self.epoch, decision.kraft_version, is_validate_only=request.validate_only
                )
            last_offset = self._execute(decision)
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            if isinstance(request, BrokerRegistrationRequest):
                self._log_refusal(request, error)
            return error_answer(request, error)
        finally:
            self.history.operations.observe(perf_counter() - began_s)
        timeout_ms = getattr(request, "timeout_ms", 0) or DEFAULT_TIMEOUT_MS
        await self._log.wait_committed(last_offset, timeout_ms)
        response: Message = decision.response
        if mutations.wait_ms:
            set_throttle_time(response, mutations.wait_ms)
        return response

    def _log_refusal(self, request: BrokerRegistrationRequest, error: ApiError) -> None:
        """Log why a broker was not registered: the response has no field for the reason.

        A broker registers again twice a second. Each reason is logged once per process of the
        broker.
        """
        if self._refusals.allow((request.broker_id, request.incarnation_id, str(error))):
            logger.warning("broker %d was not registered: %s", request.broker_id, error)

    def _check_active(self) -> None:
        if not self.is_active:
            raise self._log.not_controller()

    def _operation_context(
        self,
        request: Message,
        context: RequestContext | None,
        mutations: Mutations,
        unresolved: Collection[str],
    ) -> OperationContext:
        own_listeners = self._context.settings.controller_listener_names
        return OperationContext(
            image=self._log.image,
            heartbeats=self._heartbeats,
            context=self._context,
            api_version=request.LAST_VERSION if context is None else context.api_version,
            next_write_offset=self._quorum.log_end_offset,
            now_ms=self._clock(),
            wall_clock_ms=self._wall_clock(),
            kraft_version=self._quorum.kraft_version,
            is_own_process=context is None,
            is_forwarded=context is None or context.listener not in own_listeners,
            requester=Requester(
                "" if context is None else context.principal,
                is_token=context is not None and context.is_token_authenticated,
            ),
            charge=mutations.charge,
            unresolved_hosts=unresolved,
            access=self._access(request, context),
        )

    def _access(self, request: Message, context: RequestContext | None) -> Access:
        if context is None:
            return FULL_ACCESS
        return Access(self._authorizer, context.principal, context.client_address, request.API_KEY)

    def _execute(self, decision: Decision[Any]) -> int:
        last_offset = self._log.append(decision)
        if decision.leaves_elections:
            self.tasks.elect_waiting_now()
        return last_offset

    # -------------------------------------------------------------- the quorum's side

    def on_publication(self, publication: Publication) -> None:
        self._log.published(publication.image)

    def on_committed(self, last_offset: int) -> None:
        self._log.committed(last_offset)
        self.tasks.committed()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id != self._context.settings.node_id:
            self._deactivate()
        elif leader.epoch != self.epoch:
            self._deactivate()
            self._activate(leader.epoch)

    def _activate(self, epoch: int) -> None:
        """Become the active controller. If that fails, resign: another node may be able to."""
        node_id = self._context.settings.node_id
        now_ms = self._clock()
        self._log.begin(epoch)
        try:
            is_bootstrapped = self._log.image.features.is_bootstrapped
            self._log.append(
                activation_records(
                    self._log.image,
                    () if is_bootstrapped else self._bootstrap(),
                    self._context.settings,
                    is_in_transaction=self._publisher.is_in_transaction,
                )
            )
            self._heartbeats.activate(self._log.image, now_ms)
            self.tasks.begin(now_ms)
        except Exception:  # another node may be able to become active
            self.history.errors += 1
            logger.exception(
                "Controller %d could not become active in epoch %d and resigns", node_id, epoch
            )
            self._deactivate()
            self._quorum.resign(epoch)
            return
        logger.info("Controller %d is active in epoch %d", node_id, epoch)
        acls = self._log.image.security.acls
        if acls and not self._context.settings.has_authorizer:
            logger.warning(
                "Controller %d has no authorizer, but the metadata has %d ACLs", node_id, len(acls)
            )

    def _deactivate(self) -> None:
        self.tasks.end()
        if self.is_active:
            self._log.end()
            logger.info("Controller %d is not active any more", self._context.settings.node_id)
