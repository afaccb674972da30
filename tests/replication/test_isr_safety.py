"""Every member of the committed ISR has all committed records, in any order of events.

The leader's view is late and its messages get lost; the controller changes the ISR on its own.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spindle.common.errors import ErrorCode
from spindle.replication.leader_state import IsrProposal, LeaderState

LEADER = 1
REPLICAS = (1, 2, 3)
LAG_MS = 1_000
followers = st.sampled_from([2, 3])


class Cluster(RuleBasedStateMachine):
    """A leader, two followers, a controller, and metadata on its way to the leader."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.isr: tuple[int, ...] = REPLICAS
        self.epoch = 0
        self.fenced: frozenset[int] = frozenset()
        self.news: list[tuple[int, tuple[int, ...], frozenset[int]]] = []
        self.fenced_as_leader_sees: frozenset[int] = frozenset()
        self.ends = {2: 0, 3: 0}
        self.in_flight: list[IsrProposal] = []
        self.answers: list[tuple[IsrProposal, ErrorCode, int, tuple[int, ...]]] = []
        self.highest = 0
        self.leader = LeaderState(
            local_id=LEADER,
            leader_epoch=0,
            partition_epoch=0,
            replicas=REPLICAS,
            isr=REPLICAS,
            min_isr=1,
            log_end_offset=0,
            high_watermark=0,
            eligibility=self,
            max_lag_ms=LAG_MS,
            now_ms=0,
        )

    # -- what the leader knows of brokers

    def is_eligible(self, replica_id: int, broker_epoch: int) -> bool:
        return replica_id not in self.fenced_as_leader_sees

    def is_alive(self, replica_id: int) -> bool:
        return replica_id not in self.fenced_as_leader_sees

    # -- the partition

    @rule(count=st.integers(1, 5), ms=st.integers(0, 600))
    def append(self, count: int, ms: int) -> None:
        self.now_ms += ms
        self.leader.on_append(self.leader.log_end_offset + count, self.now_ms)

    @rule(replica=followers, part=st.floats(0, 1), ms=st.integers(0, 600))
    def fetch(self, replica: int, part: float, ms: int) -> None:
        self.now_ms += ms
        behind = self.leader.log_end_offset - self.ends[replica]
        self.ends[replica] += round(behind * part)
        self.leader.on_follower_fetch(replica, self.ends[replica], 0, 1, self.now_ms)
        self.send(self.leader.propose_expansion())

    @rule(ms=st.integers(0, 2 * LAG_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.leader.advance(self.now_ms)
        self.send(self.leader.propose_shrink(self.now_ms))

    def send(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            self.in_flight.append(proposal)

    # -- the controller

    @precondition(lambda self: self.in_flight)
    @rule(is_answer_lost=st.booleans())
    def decide(self, is_answer_lost: bool) -> None:
        proposal = self.in_flight.pop(0)
        if proposal.partition_epoch != self.epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif self.fenced.intersection(proposal.isr):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            code = ErrorCode.NONE
            self.change(proposal.isr)
        if is_answer_lost:
            code = ErrorCode.REQUEST_TIMED_OUT
        self.answers.append((proposal, code, self.epoch, self.isr))

    @rule(replica=followers)
    def fence(self, replica: int) -> None:
        self.fenced |= {replica}
        self.change(tuple(member for member in self.isr if member != replica))

    @rule(replica=followers)
    def unfence(self, replica: int) -> None:
        self.fenced -= {replica}
        self.news.append((self.epoch, self.isr, self.fenced))

    def change(self, isr: tuple[int, ...]) -> None:
        if isr != self.isr:
            self.isr = isr
            self.epoch += 1
        self.news.append((self.epoch, self.isr, self.fenced))

    # -- what reaches the leader

    @precondition(lambda self: self.news)
    @rule()
    def learn(self) -> None:
        epoch, isr, self.fenced_as_leader_sees = self.news.pop(0)
        self.leader.update(partition_epoch=epoch, replicas=REPLICAS, isr=isr, now_ms=self.now_ms)

    @precondition(lambda self: self.answers)
    @rule()
    def hear(self) -> None:
        proposal, code, epoch, isr = self.answers.pop(0)
        if code is ErrorCode.NONE:
            self.leader.on_committed(
                proposal, leader_epoch=0, partition_epoch=epoch, isr=isr, now_ms=self.now_ms
            )
            self.send(self.leader.propose_expansion())
        else:
            must_retry, _ = self.leader.on_refused(proposal, code, self.now_ms)
            if must_retry:
                self.send(proposal)

    # -- what must hold

    @invariant()
    def nothing_committed_is_missing(self) -> None:
        high_watermark = self.leader.high_watermark
        assert self.highest <= high_watermark <= self.leader.log_end_offset
        self.highest = high_watermark
        for replica in self.isr:
            assert replica == LEADER or self.ends[replica] >= high_watermark, (replica, self.isr)

    @invariant()
    def one_proposal_at_a_time(self) -> None:
        current = [p for p in self.in_flight if p is self.leader.pending]
        assert len(current) <= 1


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
