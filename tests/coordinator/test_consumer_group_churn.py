"""Members of a consumer group in any order: no partition is read twice, and the group settles."""

from consumer_group_scenario import REVOCATION_MS, Consumer, ConsumerScenario, topics_image
from group_scenario import GROUP
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import ErrorCode

NAMES = ("a", "b", "c", "d")
actions = st.one_of(
    st.tuples(
        st.sampled_from(["join", "step", "step", "step", "leave", "crash"]), st.sampled_from(NAMES)
    ),
    st.tuples(st.sampled_from(["move", "fail", "wait", "grow"]), st.just("")),
)


class Churn:
    """A group whose members do what the test says.

    A crashed client reads nothing any more, nor does one that has sent no heartbeat for as long as
    it has for giving up partitions.
    """

    def __init__(self) -> None:
        self.s = ConsumerScenario(t=5)
        self.clients: dict[str, Consumer] = {}
        self.heard_ms: dict[str, int] = {}
        self.lives = 0

    def run(self, action: str, name: str) -> None:
        client = self.clients.get(name)
        if action == "join" and client is None:
            self.lives += 1
            self.clients[name] = self.s.join(f"{name}{self.lives}")
            self.heard_ms[name] = self.s.now_ms
        elif action == "step" and client is not None:
            self.step(name)
        elif action == "leave" and client is not None:
            del self.clients[name]
            self.s.beat(client.member_id, -1)
        elif action == "crash":
            self.clients.pop(name, None)
        elif action == "move":
            self.s.start()
        elif action == "grow":
            self.s.topics = topics_image(t=len(self.s.topics.by_name["t"].partitions) + 1)
        elif action == "fail" and self.clients:
            self.s.hold()
            member = next(iter(self.clients.values()))
            token = self.s.ask_beat(member.member_id, member.epoch)
            self.s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
            assert token not in self.s.open
        elif action == "wait":
            self.s.advance(20_000)
            for silent in [n for n in self.clients if self.is_silent(n)]:
                del self.clients[silent]
        self.s.assert_no_partition_is_read_twice(*self.clients.values())

    def is_silent(self, name: str) -> bool:
        return self.s.now_ms - self.heard_ms[name] >= REVOCATION_MS

    def step(self, name: str) -> None:
        self.heard_ms[name] = self.s.now_ms
        self.s.step(self.clients[name])


@given(st.lists(actions, max_size=40))
def test_no_partition_is_read_twice_and_the_group_settles(steps: list[tuple[str, str]]) -> None:
    churn = Churn()
    for action, name in steps:
        churn.run(action, name)
    for _ in range(12):
        for name in list(churn.clients):
            churn.step(name)
        churn.s.advance(5_000)
    read = sorted(p for client in churn.clients.values() for p in client.partitions)
    if churn.clients:
        assert len(read) == len(churn.s.topics.by_name["t"].partitions)
    else:
        group = churn.s.shard.groups.consumer.get(GROUP)
        assert group is None or not group.members
