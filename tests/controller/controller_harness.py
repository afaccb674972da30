"""A controller over a quorum in memory; the test moves its clock and commits its records."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from spindle.authorization.authorizer import Authorizer, NoAuthorizer
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.config.describe import DescribedConfig
from spindle.controller.broker_sessions import BrokerHeartbeatManager
from spindle.controller.decision import (
    ControllerContext,
    ControllerSettings,
    OperationContext,
    Requester,
)
from spindle.metadata.features import FEATURES, KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from spindle.metadata.image import MetadataImage
from spindle.metadata_log.committed import CommittedBatch
from spindle.protocol.message import Message
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.protocol.messages.broker_registration import BrokerRegistrationRequest
from spindle.protocol.messages.metadata_records import FeatureLevelRecord, NoOpRecord
from spindle.publication.feed import QuorumListener
from spindle.publication.publishers import ImagePublisher
from spindle.raft.ready import LeaderAndEpoch, NotLeader
from spindle.runtime.controller.driver import ControllerDriver
from spindle.runtime.controller.host_names import FindUnresolved
from spindle.serving.context import RequestContext

CLUSTER_ID = "QF-XhYbqTEaRFQYXoV7MoA"


def uuid(number: int) -> Uuid:
    """Return a recognisable id that is not reserved."""
    return number.to_bytes(8, "big") + bytes(8)


class AnyConfig:
    """Configuration rules that know one key of type list and accept every value but `bad`."""

    def validate(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            if value == "bad":
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value bad for {name}")

    def is_list(self, resource_type: int, name: str) -> bool:
        return name == "cleanup.policy"

    def default(self, resource_type: int, name: str) -> str | None:
        return "delete" if name == "cleanup.policy" else None

    def effective_topic_configs(
        self,
        values: Mapping[str, str],
        default_broker: Mapping[str, str],
        broker: Callable[[int], Mapping[str, str]],
    ) -> list[DescribedConfig]:
        return []


class MemoryQuorum:
    """The metadata log of one node. `commit()` delivers the batches appended since the last call.

    Attributes:
        levels: the metadata.version that was given with each append.
        resigned: epochs whose leadership the controller gave up.
        failure: the exception that appends raise; None while they succeed.
    """

    def __init__(self, publisher: QuorumListener) -> None:
        self._listener = publisher
        self.leader = LeaderAndEpoch()
        self.high_watermark: int | None = None
        self.batches: list[CommittedBatch] = []
        self.levels: list[int] = []
        self.resigned: list[int] = []
        self.failure: Exception | None = None
        self.end_offset = 0
        self.kraft_version = 0
        self._delivered = 0
        self.commits_at_once = True

    @property
    def log_end_offset(self) -> int:
        return self.end_offset

    def upgrade_kraft_version(
        self, epoch: int, version: int, *, is_validate_only: bool = False
    ) -> None:
        if not is_validate_only:
            self.kraft_version = version
            self._add([], epoch)

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)

    def become_leader(self, node_id: int, epoch: int) -> None:
        """Win an election: append and commit the control batch that opens the epoch."""
        self.leader = LeaderAndEpoch(node_id, epoch)
        self._add([], epoch)
        self.commit()
        self._listener.on_leader_change(self.leader)

    def lose_leadership(self, to_node: int, epoch: int, *, keep: int) -> None:
        """Lose the leadership to a node whose log has only `keep` of the uncommitted batches."""
        del self.batches[self._delivered + keep :]
        self.end_offset = self.batches[-1].last_offset + 1 if self.batches else 0
        self.leader = LeaderAndEpoch(to_node, epoch)
        self._listener.on_leader_change(self.leader)
        self.commit()

    def append(
        self, epoch: int, records: Sequence[Message], *, metadata_version: int, is_atomic: bool
    ) -> int:
        if self.failure is not None:
            raise self.failure
        if self.leader.epoch != epoch:
            raise NotLeader(epoch, self.leader)
        self.levels.append(metadata_version)
        self._add(list(records), epoch)
        if self.commits_at_once:
            asyncio.get_running_loop().call_soon(self.commit)
        return self.end_offset - 1

    def commit(self) -> None:
        new = self.batches[self._delivered :]
        self._delivered = len(self.batches)
        self.high_watermark = self.end_offset
        if new:
            self._listener.on_commit(new)

    def _add(self, records: list[Message], epoch: int) -> None:
        last = self.end_offset + max(1, len(records)) - 1
        self.batches.append(CommittedBatch(self.end_offset, last, epoch, 0, 100, records))
        self.end_offset = last + 1


def operation_context(
    image: MetadataImage, context: ControllerContext, next_write_offset: int = 0
) -> OperationContext:
    """Return the inputs of a decision that does not depend on its sender or on the time."""
    return OperationContext(
        image=image,
        heartbeats=BrokerHeartbeatManager(9000),
        context=context,
        api_version=-1,
        next_write_offset=next_write_offset,
        now_ms=0,
        wall_clock_ms=0,
        requester=Requester("User:ANONYMOUS"),
        kraft_version=0,
        is_own_process=False,
        is_forwarded=True,
    )


class Harness:
    """One controller node with a clock that only the test moves."""

    def __init__(
        self,
        *,
        metadata_version: int = 30,
        node_id: int = 1,
        unresolved: FindUnresolved | None = None,
        bootstrap: Sequence[Message] | None = None,
        authorizer: Authorizer | None = None,
        **settings: Any,
    ) -> None:
        self.authorizer = authorizer or NoAuthorizer()
        self.now_ms = 1_000_000
        self.publisher = ImagePublisher()
        self.quorum = MemoryQuorum(self.publisher)
        self._uuids = 0
        self.settings = ControllerSettings(node_id=node_id, cluster_id=CLUSTER_ID, **settings)
        context = ControllerContext(self.settings, AnyConfig(), self._new_uuid, Random(7))
        self.driver = ControllerDriver(
            self.quorum,
            self.publisher,
            context,
            bootstrap=lambda: _first_levels(metadata_version) if bootstrap is None else bootstrap,
            clock=lambda: self.now_ms,
            wall_clock=lambda: self.now_ms,
            authorizer=self.authorizer,
            unresolved=unresolved,
        )
        self.driver.start()

    def _new_uuid(self) -> Uuid:
        self._uuids += 1
        return uuid(0xABC000 + self._uuids)

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock, and run the periodic tasks as often as the timer would."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            due_ms = self.driver.tasks.next_due_ms
            self.now_ms = end_ms if due_ms is None else min(end_ms, max(due_ms, self.now_ms + 1))
            self.driver.tasks.run_due()
            if self.quorum.commits_at_once:
                self.quorum.commit()

    async def request(
        self,
        request: Message,
        version: int | None = None,
        *,
        principal: str = "User:ANONYMOUS",
        is_token: bool = False,
    ) -> Any:
        """Send a request at the given version; without one, at the newest.

        Args:
            is_token: the client has logged in with a delegation token.
        """
        context = RequestContext(
            api_key=request.API_KEY,
            api_version=type(request).LAST_VERSION if version is None else version,
            correlation_id=0,
            client_id="test",
            client_address="127.0.0.1",
            listener="CONTROLLER",
            principal=principal,
            is_token_authenticated=is_token,
        )
        return await self.driver.handle(request, context)

    async def register(
        self, broker_id: int, incarnation: int, directories: list[Uuid], **more: Any
    ) -> Any:
        return await self.request(registration(broker_id, incarnation, directories, **more))

    async def heartbeat(self, broker_id: int, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat of a broker that has read everything, unless said otherwise."""
        fields.setdefault("current_metadata_offset", self.quorum.end_offset - 1)
        fields.setdefault("cordoned_log_dirs", [])
        return await self.request(
            BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, **fields),
        )

    async def broker(self, broker_id: int, directories: list[Uuid], **more: Any) -> int:
        """Register and unfence a broker; return its epoch."""
        response = await self.register(broker_id, 100 + broker_id, directories, **more)
        epoch: int = response.broker_epoch
        await self.heartbeat(broker_id, epoch)
        return epoch

    def records(self, first_batch: int = 0) -> list[list[Message]]:
        """Return the batches that have records, without no-ops, beginning with the given one."""
        messages = [
            [record for record in batch.records if not isinstance(record, NoOpRecord)]
            for batch in self.quorum.batches[first_batch:]
        ]
        return [batch for batch in messages if batch]


def _first_levels(metadata_version: int) -> list[Message]:
    """Return the bootstrap records of a formatted disk."""
    levels = [(f.name, f.default_level(metadata_version)) for f in FEATURES]
    others = [(name, level) for name, level in levels if level and name != KRAFT_VERSION]
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in [(METADATA_VERSION, metadata_version), *sorted(others)]
    ]


def registration(
    broker_id: int, incarnation: int, directories: list[Uuid], **more: Any
) -> BrokerRegistrationRequest:
    """Return the registration request of a broker of this build."""
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=more.pop("cluster_id", CLUSTER_ID),
        incarnation_id=uuid(incarnation),
        listeners=[
            BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=19192)
        ],
        features=more.pop(
            "features",
            [
                BrokerRegistrationRequest.Feature(
                    name=name,
                    min_supported_version=levels.minimum,
                    max_supported_version=levels.maximum,
                )
                for name, levels in SUPPORTED_FEATURES.items()
            ],
        ),
        rack=more.pop("rack", None),
        log_dirs=directories,
        **more,
    )
