"""A broker's session with the controller: registration, heartbeats, unfencing, controlled shutdown.

KIP-631, KIP-858 (every heartbeat names the offline directories), KIP-1066 (cordoned directories).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Any, Final, Self

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import Endpoint
from spindle.common.uuids import Uuid, uuid_sort_key, uuid_text
from spindle.config.node_config import NodeConfig
from spindle.metadata.broker_registration import feature_rows, listener_rows
from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.features import VersionRange
from spindle.protocol.message import Message
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from spindle.runtime import background
from spindle.runtime.backoff import Backoff
from spindle.serving.ports import ControllerChannel

log = logging.getLogger(__name__)

_INITIAL_RETRY_MS: Final = 100
_MAX_REGISTRATION_RETRY_MS: Final = 500
"""A killed broker that starts again is refused until its old session ends. Kafka doubles the pause
between attempts up to a minute, which can double the downtime; this limit avoids that."""
_STARTING_HEARTBEAT_S: Final = 0.01
_FIRST_SHUTDOWN_HEARTBEAT_S: Final = 0.05
_CONTROLLED_SHUTDOWN_S: Final = 300.0


class BrokerState(IntEnum):
    """Kafka's numbers of a broker's states."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The fields of a broker's registration; `directories` returns the online directories."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    endpoints: Callable[[], Sequence[Endpoint]]
    features: dict[str, VersionRange]
    rack: str | None
    directories: Callable[[], Sequence[Uuid]]
    previous_broker_epoch: int


@dataclass(frozen=True, slots=True)
class LifecycleTimes:
    """All in ms, named after their configuration keys."""

    heartbeat_interval_ms: int
    session_timeout_ms: int
    initial_registration_timeout_ms: int
    log_dir_failure_timeout_ms: int

    @classmethod
    def of(cls, config: NodeConfig) -> Self:
        integer = config.integer
        return cls(
            heartbeat_interval_ms=integer("broker.heartbeat.interval.ms"),
            session_timeout_ms=integer("broker.session.timeout.ms"),
            initial_registration_timeout_ms=integer("initial.broker.registration.timeout.ms"),
            log_dir_failure_timeout_ms=integer("log.dir.failure.timeout.ms"),
        )


class BrokerLifecycle:
    """Drives one broker's session.

    Attributes:
        caught_up: completes when the broker has read its own registration.
        unfenced: completes when the controller unfences it for the first time.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        times: LifecycleTimes,
        channel: ControllerChannel,
        metadata_offset: Callable[[], int],
        on_epoch: Callable[[int], None],
        on_fatal: Callable[[str], None],
        random: Random,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.caught_up: asyncio.Future[None] = loop.create_future()
        self.unfenced: asyncio.Future[None] = loop.create_future()
        self._identity = identity
        self._times = times
        self._channel = channel
        self._metadata_offset = metadata_offset
        self._on_epoch = on_epoch
        self._on_fatal = on_fatal
        self._random = random.random
        self._backoff = Backoff(_INITIAL_RETRY_MS, times.session_timeout_ms, self._random)
        self._offline: dict[Uuid, None] = {}
        self._recovered: dict[Uuid, None] = {}
        self._acknowledged_offline: dict[Uuid, None] = {}
        self._checks: dict[Uuid, asyncio.TimerHandle] = {}
        self._is_registration_due = False
        self._is_ready = False
        self._wants_shutdown = False
        self._shutdown_allowed: asyncio.Future[bool] = loop.create_future()
        self._answered_s = loop.time()
        self._cordoned: list[Uuid] | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- what the node reports

    def start(self) -> None:
        self.state = BrokerState.STARTING
        self._task = background.run_forever(
            self._turn,
            "broker lifecycle",
            pause_s=self._times.heartbeat_interval_ms / 1000,
        )

    def set_ready(self) -> None:
        """Request to be unfenced: the broker can serve."""
        self._is_ready = True
        self._wake.set()

    def metadata_advanced(self) -> None:
        """Send a heartbeat now if the broker is catching up: its metadata offset has advanced."""
        if not self.caught_up.done() or not self.unfenced.done():
            self._wake.set()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Report a failed directory now; end the process if that fails for too long."""
        self._offline[directory_id] = None
        self._wake.set()
        limit_s = self._times.log_dir_failure_timeout_ms / 1000
        self._checks[directory_id] = asyncio.get_running_loop().call_later(
            limit_s, self._check_reported, directory_id
        )

    def registration_changed(self, own: BrokerRegistration | None) -> None:
        """Register again if the controller does not know an online directory.

        A delayed heartbeat may have reported as offline a directory that has come back.
        """
        if own is None or own.incarnation_id != self._identity.incarnation_id:
            return
        if own.directories and not all(
            directory in own.directories for directory in self._identity.directories()
        ):
            self.register_again()

    def register_again(self, recovered: Uuid | None = None) -> None:
        """Renew the registration of this process, because its directories have changed.

        Args:
            recovered: a directory that had failed and is no longer reported as offline.
        """
        if recovered:
            self._recovered[recovered] = None
        self._is_registration_due = True
        self._wake.set()

    def set_cordoned(self, directory_ids: Sequence[Uuid]) -> None:
        """Report the cordoned directories, at once if they have changed (KIP-1066)."""
        if list(directory_ids) != self._cordoned:
            self._cordoned = list(directory_ids)
            self._wake.set()

    def _check_reported(self, directory_id: Uuid) -> None:
        if directory_id not in self._acknowledged_offline:
            self._on_fatal(
                f"the failure of log directory {uuid_text(directory_id)} could not be reported to "
                f"the controller within log.dir.failure.timeout.ms="
                f"{self._times.log_dir_failure_timeout_ms}"
            )

    async def leave_at_once(self, timeout_s: float) -> bool:
        """Request to be fenced, because the broker cannot serve; return True if it has been fenced.

        Without this request the controller would fence the broker only when its session ends.
        """
        self._is_ready = False
        return await self.controlled_shutdown(timeout_s)

    async def controlled_shutdown(self, timeout_s: float = _CONTROLLED_SHUTDOWN_S) -> bool:
        """Request the transfer of all leaderships; return True when it is done.

        Return False at once if no controller can do it: none has responded for the time of a
        session, or the broker is no longer registered.
        """
        if self.state is not BrokerState.RUNNING:
            return False
        if self._is_session_over():
            log.warning("no controlled shutdown: no controller has answered for a session's time")
            return False
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._wants_shutdown = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._shutdown_allowed)
        except TimeoutError:
            log.warning("controlled shutdown was not granted within %.0f s", timeout_s)
            return False

    def _is_session_over(self) -> bool:
        silence_s = asyncio.get_running_loop().time() - self._answered_s
        return silence_s > self._times.session_timeout_ms / 1000

    async def stop(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        for check in self._checks.values():
            check.cancel()
        await background.end(self._task)
        self.state = BrokerState.NOT_RUNNING

    # -- the session

    async def _turn(self) -> None:
        if self.broker_epoch < 0:
            await self._register_until_accepted()
        elif self._is_registration_due:
            await self._renew_registration()
        delay_s = await self._heartbeat()
        await self._pause(delay_s)

    async def _pause(self, delay_s: float) -> None:
        if self._backoff.failures:
            await asyncio.sleep(delay_s)  # after a failure a wake-up does not shorten the pause
        else:
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes with the wake-up.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
        self._wake.clear()

    async def _register_until_accepted(self) -> None:
        timeout_s = self._times.initial_registration_timeout_ms / 1000
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        backoff = Backoff(_INITIAL_RETRY_MS, _MAX_REGISTRATION_RETRY_MS, self._random)
        last_reason = ""
        while True:
            try:
                await self._register()
            except ApiError as error:
                if asyncio.get_running_loop().time() > deadline_s:
                    self._on_fatal(
                        f"the controller did not accept the registration within "
                        f"initial.broker.registration.timeout.ms="
                        f"{self._times.initial_registration_timeout_ms}: {error}"
                    )
                    await asyncio.Event().wait()
                reason = self._refusal_text(error)
                log.log(logging.DEBUG if reason == last_reason else logging.INFO, "%s", reason)
                last_reason = reason
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                return

    def _refusal_text(self, error: ApiError) -> str:
        if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return (
                f"the controller still has a session of an earlier process of broker "
                f"{self._identity.broker_id}; this process registers when that session has ended, "
                f"after at most broker.session.timeout.ms={self._times.session_timeout_ms}"
            )
        return f"registration refused: {error}; the controller's log says why"

    async def _renew_registration(self) -> None:
        """Register again; if that fails, try again after the next heartbeat.

        No heartbeat is open meanwhile that might report a recovered directory as offline.
        """
        self._is_registration_due = False
        for directory_id in self._recovered:
            self._offline.pop(directory_id, None)
            self._acknowledged_offline.pop(directory_id, None)
            check = self._checks.pop(directory_id, None)
            if check is not None:
                check.cancel()
        self._recovered.clear()
        try:
            await self._register()
        except ApiError as error:
            self._is_registration_due = True
            log.warning("the registration was not renewed: %s", error)

    def _registered_directories(self) -> list[Uuid]:
        """Return the online directories, and the failed ones that were not reported yet.

        If a failed directory left the registration without a report, its replicas would stay
        leaders.
        """
        online = list(self._identity.directories())
        if self.broker_epoch >= 0:
            online += [d for d in self._offline if d not in self._acknowledged_offline]
        return sorted(online, key=uuid_sort_key)

    async def _register(self) -> None:
        identity = self._identity
        request = BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=listener_rows(BrokerRegistrationRequest.Listener, identity.endpoints()),
            features=feature_rows(BrokerRegistrationRequest.Feature, identity.features),
            rack=identity.rack,
            log_dirs=self._registered_directories(),
            previous_broker_epoch=identity.previous_broker_epoch,
        )
        response: BrokerRegistrationResponse = await self._ask(request)
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code))
        self.broker_epoch = response.broker_epoch
        self._on_epoch(response.broker_epoch)
        log.info("registered broker %d, epoch %d", identity.broker_id, response.broker_epoch)

    async def _ask(self, request: Message) -> Any:
        """Return the controller's response; wait for at most half the session.

        If the connection is dead, there is still time for another request in the session.
        """
        limit_ms = self._times.session_timeout_ms / 2
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._channel.request(request)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"no answer within {limit_ms:.0f} ms"
            ) from None

    async def _heartbeat(self) -> float:
        """Send a heartbeat; return the seconds until the next one."""
        offline = list(self._offline)
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._is_ready,
            want_shut_down=self._wants_shutdown,
            offline_log_dirs=offline,
            cordoned_log_dirs=self._reported_cordons(),
        )
        try:
            response: BrokerHeartbeatResponse = await self._ask(request)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
        except ApiError as error:
            log.info("heartbeat failed: %s", error)
            self._give_up_shutdown(error)
            return self._backoff.next_ms() / 1000
        self._backoff.reset()
        self._answered_s = asyncio.get_running_loop().time()
        self._acknowledged_offline.update(dict.fromkeys(offline))
        return self._follow(response)

    def _give_up_shutdown(self, error: ApiError) -> None:
        """Abort a controlled shutdown that no controller can complete, so that the broker stops."""
        if self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return
        is_gone = error.code is ErrorCode.STALE_BROKER_EPOCH
        if (is_gone or self._is_session_over()) and not self._shutdown_allowed.done():
            log.warning("controlled shutdown failed: %s", error)
            self._shutdown_allowed.set_result(False)

    def _reported_cordons(self) -> list[Uuid] | None:
        """Return the cordoned directories; None until the broker knows its configuration."""
        if self._cordoned is None or not self.caught_up.done():
            return None
        return list(self._cordoned)

    def _follow(self, response: BrokerHeartbeatResponse) -> float:
        """Enter the state that a response requires; return the seconds until the next heartbeat."""
        if self.state is BrokerState.STARTING:
            if not response.is_caught_up:
                return _STARTING_HEARTBEAT_S
            self.state = BrokerState.RECOVERY
            if not self.caught_up.done():
                self.caught_up.set_result(None)
            self._wake.set()
        elif self.state is BrokerState.RECOVERY:
            if not response.is_fenced:
                self.state = BrokerState.RUNNING
                if not self.unfenced.done():
                    self.unfenced.set_result(None)
            elif self._is_ready:
                return _STARTING_HEARTBEAT_S
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                if not self._shutdown_allowed.done():
                    self._shutdown_allowed.set_result(True)
            else:
                return _FIRST_SHUTDOWN_HEARTBEAT_S
        return self._times.heartbeat_interval_ms / 1000
