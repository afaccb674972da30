"""Members of a consumer group in any order: no partition is read twice, and the group settles."""

from consumer_group_scenario import REVOCATION_MS, Consumer, ConsumerScenario, topics_image
from group_scenario import GROUP
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import ErrorCode
from spindle.coordinator.config import ConsumerGroupConfig

NAMES = ("a", "b", "c", "d")
SUBSCRIPTIONS = ("t", "t u", "u")
actions = st.one_of(
    st.tuples(
        st.sampled_from(["join", "step", "step", "step", "leave", "crash"]), st.sampled_from(NAMES)
    ),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(SUBSCRIPTIONS)),
    st.tuples(st.sampled_from(["move", "fail", "wait", "pause", "grow"]), st.just("")),
)


class Churn:
    """A group whose members do what the test says; a pair of names changes a subscription.

    A crashed client reads nothing any more, nor does one that has sent no heartbeat for as long as
    it has for giving up partitions.
    """

    def __init__(self, interval_ms: int) -> None:
        self.s = ConsumerScenario(t=5, u=3)
        self.s.consumer_config = ConsumerGroupConfig(assignment_interval_ms=interval_ms)
        self.clients: dict[str, Consumer] = {}
        self.heard_ms: dict[str, int] = {}
        self.topics: dict[str, list[str]] = {}
        self.lives = 0

    def run(self, action: str, name: str) -> None:
        client = self.clients.get(name)
        if action in NAMES:
            self.subscribe(action, name.split())
        elif action == "join" and client is None:
            self.lives += 1
            self.topics[name] = ["t"]
            self.clients[name] = self.s.join_consumer(f"{name}{self.lives}")
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
            count = len(self.s.topics.by_name["t"].partitions)
            self.s.topics = topics_image(t=count + 1, u=3)
        elif action == "fail" and self.clients:
            self.s.hold()
            member = next(iter(self.clients.values()))
            token = self.s.ask_beat(member.member_id, member.epoch)
            self.s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
            assert token not in self.s.open
        elif action == "pause":
            self.s.advance(500)
        elif action == "wait":
            self.s.advance(20_000)
            for silent in [n for n in self.clients if self.is_silent(n)]:
                del self.clients[silent]
        self.s.assert_no_partition_is_read_twice(*self.clients.values())

    def is_silent(self, name: str) -> bool:
        return self.s.now_ms - self.heard_ms[name] >= REVOCATION_MS

    def subscribe(self, name: str, topics: list[str]) -> None:
        client = self.clients.get(name)
        if client is not None:
            self.heard_ms[name] = self.s.now_ms
            self.topics[name] = topics
            self.s.subscribe(client, *topics)

    def step(self, name: str) -> None:
        self.heard_ms[name] = self.s.now_ms
        self.s.step(self.clients[name])


@given(st.lists(actions, max_size=40), st.sampled_from([0, 1_000]))
def test_no_partition_is_read_twice_and_the_group_settles(
    steps: list[tuple[str, str]], interval_ms: int
) -> None:
    churn = Churn(interval_ms)
    for action, name in steps:
        churn.run(action, name)
    for _ in range(12):
        for name in list(churn.clients):
            churn.step(name)
        churn.s.advance(5_000)
    read = sorted(p for client in churn.clients.values() for p in client.partitions)
    if churn.clients:
        subscribed = {topic for name in churn.clients for topic in churn.topics[name]}
        assert read == sorted(
            (topic, partition)
            for topic in subscribed
            for partition in churn.s.topics.by_name[topic].partitions
        )
        for name, client in churn.clients.items():
            assert {topic for topic, _ in client.partitions} <= set(churn.topics[name])
    else:
        group = churn.s.shard.groups.consumer.get(GROUP)
        assert group is None or not group.members
