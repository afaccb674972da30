"""Many nodes of the metadata quorum in one thread: message loss, partitions and crashes by a seed.

Every node is the real state machine on the real log over a `MemoryFileSystem` that forgets what was
not synced. Messages go through the codec. After every step the safety of the protocol is checked:
one leader per epoch, nothing committed is ever lost or different, high watermarks do not fall.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any, Final, NamedTuple

from spindle.common.ids import Endpoint, OffsetAndEpoch
from spindle.log.formats.names import LOG_SUFFIX
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.metadata_log.committed import decode_batch
from spindle.metadata_log.metadata_log import MetadataLog, RetentionSettings
from spindle.metadata_log.partition_log import DIRECTORY_NAME, PartitionLog
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, write_snapshot
from spindle.protocol.api import response_class
from spindle.protocol.codec import decode, encode
from spindle.protocol.message import Message
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from spindle.protocol.messages.metadata_records import TopicRecord
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.protocol.metadata_frame import frame
from spindle.protocol.records.batch import batches
from spindle.raft.invariants import check_invariants
from spindle.raft.quorum import Quorum
from spindle.raft.ready import (
    AppendBatches,
    AppendRecords,
    Event,
    Flush,
    InstallSnapshot,
    LogCleaned,
    LogFlushed,
    LogOperation,
    NotLeader,
    ReadSnapshot,
    Ready,
    Reply,
    Request,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    SnapshotWritten,
    StartUp,
    Tick,
    Truncate,
    WriteSnapshotChunk,
)
from spindle.raft.roles import Leader
from spindle.raft.settings import LocalNode, QuorumSettings
from spindle.raft.voters import ReplicaKey, Voter, VoterSet
from spindle.testing.filesystem import MemoryFileSystem
from verification.simulation.committed_oracle import CommittedOracle
from verification.simulation.verdict import InvariantViolated

CLUSTER_ID: Final = "simulated-cluster-id00"
ROOT: Final = "/node"
_LOG_CONFIG: Final = LogConfig(
    segment_bytes=2000, segment_index_bytes=120, index_interval_bytes=200, retention_ms=-1
)


class QuorumChances(NamedTuple):
    """How rough the simulated world is: probabilities per message or per disturbance period.

    Attributes:
        cut_power: a host loses power and keeps what it synced.
        kill: a process dies between two operations on its files and keeps what it wrote.
    """

    loss: float = 0.05
    cut_power: float = 0.1
    kill: float = 0.1
    cut: float = 0.1
    snapshot: float = 0.1
    membership: float = 0.0


@dataclass(slots=True)
class Job:
    """One round of file work, as the node's disk will do it."""

    readies: list[Ready]
    kraft_version: int


class CoreNode:
    """A node: durable files, and while it is up a state machine and its pending work."""

    def __init__(
        self, simulation: "RaftSimulation", key: ReplicaKey, *, can_vote: bool, is_member: bool
    ) -> None:
        self.simulation = simulation
        self.key = key
        self.can_vote = can_vote
        self.endpoint = Endpoint("CONTROLLER", "node", key.id)
        self.files = MemoryFileSystem()
        self.files.make_directories(f"{ROOT}/{DIRECTORY_NAME}")
        self.files.sync_directory("/")
        self.files.sync_directory(ROOT)
        if is_member:
            self._format(simulation)
        self.quorum: Quorum | None = None
        self.life = 0
        self.applied_offset = 0
        self.digest = b""
        self._log: MetadataLog
        self._waiting: list[Ready] = []
        self._is_disk_busy = False
        self._wake_at_ms: int | None = None
        self._reply_to: dict[int, Callable[[Message], None]] = {}
        self._next_token = 0
        self._dies_after: int | None = None

    def __str__(self) -> str:
        return f"node {self.key.id}"

    def _format(self, simulation: "RaftSimulation") -> None:
        """Write what `spindle storage format` writes for a voter of a reconfigurable quorum."""
        content = encode_snapshot(
            [], SnapshotInfo(0, 1, simulation.first_voters), epoch=0, now_ms=0
        )
        directory = f"{ROOT}/{DIRECTORY_NAME}"
        write_snapshot(self.files, directory, OffsetAndEpoch(0, 0), content, "format")

    # ------------------------------------------------------------ up and down

    @property
    def is_up(self) -> bool:
        return self.quorum is not None

    @property
    def leads(self) -> bool:
        return self.quorum is not None and isinstance(self.quorum.core.role, Leader)

    def start(self) -> None:
        simulation = self.simulation
        storage = LogStorage(self.files, ROOT)
        log = PartitionLog.open(storage, _LOG_CONFIG, simulation.now_ms)
        self._log = MetadataLog(
            self.files,
            f"{ROOT}/{DIRECTORY_NAME}",
            log,
            RetentionSettings(max_bytes=3000, max_ms=-1),
        )
        stored = self._log.load(simulation.static_voters)
        local = LocalNode(
            self.key,
            CLUSTER_ID,
            endpoints=(self.endpoint,) if self.can_vote else (),
            can_vote=self.can_vote,
        )
        self.quorum = Quorum(local, simulation.settings, simulation.random, stored)
        self.applied_offset = 0
        self.digest = b""
        if stored.log.snapshots and stored.log.snapshots[-1].offset > 0:
            self._load_snapshot(stored.log.snapshots[-1])
        self.step(StartUp())

    def cut_power(self) -> None:
        """Lose power: unsynced bytes survive only by chance."""
        random = self.simulation.random
        self.kill()
        self.files.crash(lambda path, unsynced: random.randint(0, unsynced))

    def kill(self) -> None:
        """End the process; its files stay as it wrote them."""
        self.quorum = None
        self.life += 1
        self._waiting.clear()
        self._is_disk_busy = False
        self._wake_at_ms = None
        self._reply_to.clear()
        self._dies_after = None

    def kill_after(self, operations: int) -> None:
        """End the process in the middle of its file work, after so many more operations."""
        self._dies_after = operations

    # ------------------------------------------------------------ steps

    def step(self, event: Event) -> None:
        quorum = self.quorum
        if quorum is None:
            return
        before = quorum.core.high_watermark
        ready = quorum.step(event, self.simulation.now_ms)
        check_invariants(quorum.core)
        if isinstance(event, StartUp | LogFlushed):
            self._check_durable(quorum)
        after = quorum.core.high_watermark
        if before is not None and (after is None or after < before):
            raise InvariantViolated(f"{self}: high watermark fell from {before} to {after}")
        self.simulation.note_role(self)
        self._waiting.append(ready)
        self._begin_round()
        self._wake(ready.wake_at_ms)

    def _check_durable(self, quorum: Quorum) -> None:
        """Check that the records which the node acknowledges are on its device."""
        log = quorum.core.log
        if not log.is_flushed or self._is_disk_busy:
            return
        directory = f"{ROOT}/{DIRECTORY_NAME}"
        for name in self.files.list_directory(directory):
            if name.endswith(LOG_SUFFIX) and not self.files.is_durable(f"{directory}/{name}"):
                raise InvariantViolated(
                    f"{self} acknowledges everything below {log.flushed_offset}, but {name} is not "
                    "on its device"
                )

    def append(self, values: list[bytes]) -> None:
        """Append as leader, if the node still is."""
        quorum = self.quorum
        if quorum is not None:
            try:
                self.step(AppendRecords(quorum.core.epoch, values))
            except NotLeader:
                return

    def receive(self, request: Message, answer: Callable[[Message], None]) -> None:
        if isinstance(request, ApiVersionsRequest):
            feature = ApiVersionsResponse.SupportedFeatureKey(
                name="kraft.version", min_version=0, max_version=1
            )
            answer(ApiVersionsResponse(supported_features=[feature]))
            return
        self._next_token += 1
        self._reply_to[self._next_token] = answer
        self.step(RequestReceived(self._next_token, request))

    def _wake(self, wake_at_ms: int | None) -> None:
        self._wake_at_ms = wake_at_ms
        if wake_at_ms is not None:
            life = self.life

            def tick() -> None:
                if self.life == life and self._wake_at_ms == wake_at_ms:
                    self.step(Tick())

            self.simulation.after(max(1, wake_at_ms - self.simulation.now_ms), tick)

    # ------------------------------------------------------------ the disk

    def _begin_round(self) -> None:
        if self._is_disk_busy or not self._waiting or self.quorum is None:
            return
        self._is_disk_busy = True
        job = Job(self._waiting, self.quorum.core.history.kraft_version)
        self._waiting = []
        life = self.life

        def run() -> None:
            if self.life == life:
                self._run(job)

        self.simulation.after(self.simulation.random.randint(0, 4), run)

    def _run(self, job: Job) -> None:
        installed = None
        flushes = 0
        reads: dict[int, Any] = {}
        for ready in job.readies:
            if ready.election_state is not None:
                self._log.write_election_state(ready.election_state, job.kraft_version)
            for operation in ready.log_operations:
                if self._dies_after is not None:
                    self._dies_after -= 1
                    if self._dies_after < 0:
                        self.simulation.kill(self)
                        return
                installed = self._do(operation) or installed
                flushes += isinstance(operation, Flush)
            for reply in ready.replies:
                reads[reply.token] = self._read(reply)
        self._is_disk_busy = False
        for ready in job.readies:
            for request in ready.requests:
                self.simulation.send(self, request)
            for reply in ready.replies:
                self._answer(reply, reads[reply.token])
        for _ in range(flushes):
            self.step(LogFlushed())
        if installed is not None:
            self._load_snapshot(installed.snapshot_id)
            self.step(installed)
        self._apply()
        self._begin_round()

    def _do(self, operation: LogOperation) -> SnapshotInstalled | None:
        match operation:
            case AppendBatches(batches=content):
                self._log.append(content, self.simulation.now_ms)
            case Truncate(offset):
                self._log.truncate_to(offset)
            case Flush():
                self._log.flush()
            case WriteSnapshotChunk(snapshot_id, position, data):
                self._log.write_fetched_chunk(snapshot_id, position, data)
            case InstallSnapshot(snapshot_id):
                info = self._log.install_snapshot(snapshot_id)
                return SnapshotInstalled(snapshot_id, info.voters, info.kraft_version)
        return None

    def _read(self, reply: Reply) -> Any:
        read = reply.read
        if read is None:
            return None
        if isinstance(read, ReadSnapshot):
            return self._log.read_snapshot_slice(read.snapshot_id, read.position, read.max_bytes)
        if self._log.start_offset <= read.offset < self._log.end_offset:
            return bytes(self._log.read(read.offset, read.max_bytes))
        return b""

    def _answer(self, reply: Reply, found: Any) -> None:
        response = reply.response
        if isinstance(response, FetchResponse) and found is not None:
            response.responses[0].partitions[0].records = found
        elif isinstance(response, FetchSnapshotResponse) and found is not None:
            partition = response.topics[0].partitions[0]
            partition.unaligned_records, partition.size = found
        answer = self._reply_to.pop(reply.token, None)
        if answer is not None:
            answer(response)

    # ------------------------------------------------------------ the state of the node

    def _apply(self) -> None:
        """Apply what is committed and on the disk, and compare it with what others did."""
        quorum = self.quorum
        if quorum is None or quorum.core.high_watermark is None:
            return
        end_offset = min(quorum.core.high_watermark, self._log.end_offset)
        while self.applied_offset < end_offset:
            content = self._log.read(max(self.applied_offset, self._log.start_offset), 4000)
            for position, header in batches(content):
                if header.base_offset < self.applied_offset:
                    continue
                if header.next_offset > end_offset:
                    return
                data = content[position : position + header.size_bytes]
                self.digest = sha256(self.digest + data).digest()
                self.simulation.oracle.commit(
                    str(self), header.base_offset, header.next_offset, self.digest
                )
                self.applied_offset = header.next_offset

    def _load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        content = self._log.read_snapshot_bytes(snapshot_id)
        for position, header in batches(content):
            if not header.is_control:
                for state in decode_batch(content, position, header).records:
                    assert isinstance(state, TopicRecord)
                    self.digest = bytes.fromhex(state.name)
        self.simulation.oracle.check_snapshot(str(self), snapshot_id, self.digest)
        self.applied_offset = snapshot_id.offset

    def take_snapshot(self) -> None:
        """Write a snapshot of the applied state and drop old ones with the log before them."""
        quorum = self.quorum
        if quorum is None or self._is_disk_busy:
            return
        core = quorum.core
        epoch = core.log.epochs.epoch_at(self.applied_offset - 1)
        if epoch is None or self.applied_offset <= core.log.start_offset:
            return
        snapshot_id = OffsetAndEpoch(self.applied_offset, epoch)
        history = core.history
        info = SnapshotInfo(
            0,
            history.kraft_version_before(snapshot_id.offset),
            history.voters_before(snapshot_id.offset),
        )
        # A snapshot that a node fetches has to be one of metadata.
        state = frame(TopicRecord(name=self.digest.hex()), version=0)
        content = encode_snapshot([state], info, epoch=epoch, now_ms=0)
        self._log.write_snapshot(snapshot_id, content, "own")
        self.step(SnapshotWritten(snapshot_id))
        if self._log.clean(self.applied_offset, self.simulation.now_ms):
            self.step(LogCleaned(self._log.start_offset, self._log.snapshot_ids))


class RaftSimulation:
    """A cluster, its network and its clock.

    Args:
        voter_count: nodes that are voters from the start.
        observer_count: further nodes; controllers if the quorum is dynamic, else brokers.
        is_dynamic: kraft.version 1, with voters added and removed by chance.
    """

    def __init__(
        self,
        seed: int,
        *,
        voter_count: int = 3,
        observer_count: int = 1,
        is_dynamic: bool = False,
        chances: QuorumChances = QuorumChances(),  # noqa: B008 - immutable
    ) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.chances = chances
        self.oracle = CommittedOracle()
        self.leaders: dict[int, ReplicaKey] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._cut: list[tuple[int, int]] = []
        self._is_calm = False
        self._is_idle = False
        voters = [
            Voter(ReplicaKey(i, _directory(i)), (Endpoint("CONTROLLER", "node", i),))
            for i in range(1, voter_count + 1)
        ]
        self.first_voters = VoterSet(voters)
        self.static_voters = VoterSet(
            [] if is_dynamic else [Voter(ReplicaKey(v.key.id), v.endpoints) for v in voters]
        )
        self.settings = QuorumSettings(
            fetch_snapshot_max_bytes=150,
            fetch_max_bytes=1500,
            bootstrap_servers=tuple(voter.endpoints[0] for voter in voters),
        )
        self.nodes = {
            voter.key.id: CoreNode(self, voter.key, can_vote=True, is_member=is_dynamic)
            for voter in voters
        }
        for i in range(voter_count + 1, voter_count + observer_count + 1):
            key = ReplicaKey(i, _directory(i))
            self.nodes[i] = CoreNode(self, key, can_vote=is_dynamic, is_member=False)
        for node in self.nodes.values():
            self.after(self.random.randint(0, 300), node.start)

    # ------------------------------------------------------------ time

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, action))

    def run(self, duration_ms: int) -> None:
        """Let time pass, with load and, unless it is calm, with disturbances."""
        end_ms = self.now_ms + duration_ms
        self._schedule_chances(end_ms)
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        self.now_ms = end_ms

    def _schedule_chances(self, end_ms: int) -> None:
        for at in range(self.now_ms, end_ms, 100):
            self.after(at - self.now_ms + self.random.randint(0, 99), self._load)
        if not self._is_calm:
            for at in range(self.now_ms, end_ms, 250):
                self.after(at - self.now_ms + self.random.randint(0, 249), self._disturb)

    def calm_down(self) -> None:
        """End all disturbances and bring every node up."""
        self._is_calm = True
        self._cut = []
        for node in self.nodes.values():
            if not node.is_up:
                node.start()

    def settle(self, duration_ms: int) -> None:
        """Let time pass without new records."""
        self._is_idle = True
        self.run(duration_ms)

    # ------------------------------------------------------------ the world

    def _load(self) -> None:
        if self._is_idle:
            return
        leader = self._any(node for node in self.nodes.values() if node.leads)
        if leader is not None:
            count = self.random.randint(1, 3)
            leader.append([self.random.randbytes(self.random.randint(1, 60)) for _ in range(count)])

    def _disturb(self) -> None:
        if self._is_calm:
            return
        chances, random = self.chances, self.random
        if random.random() < chances.cut_power:
            self._cut_power_of_one()
        if random.random() < chances.kill:
            self._kill_one()
        if random.random() < chances.cut:
            self._cut_off_one()
        if random.random() < chances.snapshot:
            node = self._any(node for node in self.nodes.values() if node.is_up)
            if node is not None:
                node.take_snapshot()
        if random.random() < chances.membership:
            self._change_voters()

    def _cut_power_of_one(self) -> None:
        node = self._any(node for node in self.nodes.values() if node.is_up)
        if node is None:
            return
        node.cut_power()
        self._restart_later(node)

    def _kill_one(self) -> None:
        node = self._any(node for node in self.nodes.values() if node.is_up)
        if node is not None:
            node.kill_after(self.random.randint(0, 3))

    def kill(self, node: CoreNode) -> None:
        """End the process of a node, which is started again some time later."""
        node.kill()
        self._restart_later(node)

    def _restart_later(self, node: CoreNode) -> None:
        life = node.life

        def restart() -> None:
            if not node.is_up and node.life == life:
                node.start()

        self.after(self.random.randint(10, 3000), restart)

    def _cut_off_one(self) -> None:
        isolated = self.random.choice(list(self.nodes))
        cut = [(isolated, other) for other in self.nodes if other != isolated]
        if self.random.random() < 0.5:
            cut = cut[: len(cut) // 2]
        self._cut += cut

        def heal() -> None:
            self._cut = [pair for pair in self._cut if pair not in cut]

        self.after(self.random.randint(100, 4000), heal)

    def _change_voters(self) -> None:
        leader = self._any(node for node in self.nodes.values() if node.leads)
        if leader is None or leader.quorum is None:
            return
        voters = leader.quorum.core.voters
        target = self.nodes[self.random.choice(list(self.nodes))]
        if voters.get(target.key.id) is None:
            endpoint = target.endpoint
            listener = AddRaftVoterRequest.Listener(
                name=endpoint.listener, host=endpoint.host, port=endpoint.port
            )
            request: Message = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=1000,
                voter_id=target.key.id,
                voter_directory_id=target.key.directory_id,
                listeners=[listener],
            )
        elif len(voters) > 2:
            request = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                voter_id=target.key.id,
                voter_directory_id=target.key.directory_id,
            )
        else:
            return
        leader.receive(request, lambda response: None)

    def _any(self, nodes: Iterator[CoreNode]) -> CoreNode | None:
        core_nodes = list(nodes)
        return self.random.choice(core_nodes) if core_nodes else None

    # ------------------------------------------------------------ the network

    def send(self, source: CoreNode, request: Request) -> None:
        """Carry a request to the node of its port, and the answer back."""
        target = self.nodes[request.destination.port]
        life = source.life
        kind = type(request.message)
        wire = encode(request.message, kind.LAST_VERSION)

        def refuse() -> None:
            if source.life == life:
                source.step(RequestFailed(request.request_id, is_refused=True))

        def deliver() -> None:
            if not target.is_up:
                self.after(1, refuse)
                return
            message, _ = decode(kind, kind.LAST_VERSION, wire)
            target.receive(message, answer)

        def answer(response: Message) -> None:
            answer_kind = response_class(kind.API_KEY)
            data = encode(response, answer_kind.LAST_VERSION)

            def arrive() -> None:
                if source.life == life and source.is_up:
                    message, _ = decode(answer_kind, answer_kind.LAST_VERSION, memoryview(data))
                    source.step(ResponseReceived(request.request_id, message))

            self._carry(target.key.id, source.key.id, arrive)

        self._carry(source.key.id, target.key.id, deliver)

    def _carry(self, source_id: int, target_id: int, action: Callable[[], None]) -> None:
        is_cut = (source_id, target_id) in self._cut or (target_id, source_id) in self._cut
        is_lost = not self._is_calm and self.random.random() < self.chances.loss
        if not is_cut and not is_lost:
            self.after(self.random.randint(1, 15), action)

    # ------------------------------------------------------------ invariants

    def note_role(self, node: CoreNode) -> None:
        """Check that an epoch has one leader."""
        if not node.leads or node.quorum is None:
            return
        epoch = node.quorum.core.epoch
        leader = self.leaders.setdefault(epoch, node.key)
        if leader != node.key:
            raise InvariantViolated(f"{leader} and {node.key} both lead epoch {epoch}")

    def check_converged(self) -> None:
        """After a calm time: one leader, and all nodes have applied its whole log."""
        leaders = [node for node in self.nodes.values() if node.leads]
        if len(leaders) != 1 or leaders[0].quorum is None:
            raise InvariantViolated(f"{len(leaders)} leaders in calm times")
        end_offset = leaders[0].quorum.core.log.end_offset
        for node in self.nodes.values():
            if node.applied_offset < end_offset:
                raise InvariantViolated(
                    f"{node} has applied {node.applied_offset} of {end_offset} offsets"
                )
        if end_offset < self.oracle.end_offset:
            raise InvariantViolated("committed records are missing from the leader's log")


def _directory(node_id: int) -> bytes:
    return bytes(15) + bytes((200 + node_id,))
