"""Fencing, the ELR and elections over three brokers, as Apache Kafka 4.3.1 recorded them."""

from typing import Any

import pytest
from controller_harness import Harness, uuid

from spindle.common.errors import ErrorCode
from spindle.controller import broker_heartbeat
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_partition import AlterPartitionRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from spindle.protocol.messages.unregister_broker import UnregisterBrokerRequest
from spindle.protocol.messages.update_features import UpdateFeaturesRequest

TOPIC = CreateTopicsRequest.CreatableTopic


class Cluster(Harness):
    """Three brokers with two directories each; topics e (1:2:3) and p (3:2:1), min ISR 2."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[int, int] = {}
        self.topics: dict[str, bytes] = {}
        self._incarnation = 1000
        self._seen = 0

    async def start(self) -> None:
        self.quorum.become_leader(1, 1)
        for broker_id in (1, 2, 3):
            self.epochs[broker_id] = await self.broker(broker_id, self.directories(broker_id))
        for name, replicas in (("e", [1, 2, 3]), ("p", [3, 2, 1])):
            topic = TOPIC(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[TOPIC.CreatableReplicaAssignment(broker_ids=replicas)],
                configs=[TOPIC.CreatableTopicConfig(name="min.insync.replicas", value="2")],
            )
            (created,) = (await self.request(CreateTopicsRequest(topics=[topic]))).topics
            self.topics[name] = created.topic_id
        self.new_records()

    def directories(self, broker_id: int) -> list[bytes]:
        return [uuid(broker_id * 10 + 1), uuid(broker_id * 10 + 2)]

    def new_records(self) -> list[list[Message]]:
        """Return the batches since the last call."""
        records = self.records(self._seen)
        self._seen = len(self.quorum.batches)
        return records

    async def beat_all(self, *but: int) -> None:
        for broker_id, epoch in self.epochs.items():
            if broker_id not in but:
                await self.heartbeat(broker_id, epoch)

    async def die(self, *broker_ids: int) -> None:
        """Let the sessions of these brokers expire while the others send heartbeats."""
        for _ in range(3):
            self.pass_time(3001)
            await self.beat_all(*broker_ids)
        self.pass_time(1500)

    async def restart(self, broker_id: int, *, after_clean_stop: bool = False) -> None:
        await self.start_again(broker_id, after_clean_stop=after_clean_stop)
        await self.heartbeat(broker_id, self.epochs[broker_id])

    async def start_again(self, broker_id: int, *, after_clean_stop: bool = False) -> None:
        """Register a broker, which stays fenced."""
        self._incarnation += 1
        previous = self.epochs[broker_id] if after_clean_stop else -1
        response = await self.register(
            broker_id,
            self._incarnation,
            self.directories(broker_id),
            previous_broker_epoch=previous,
        )
        assert response.error_code == 0
        self.epochs[broker_id] = response.broker_epoch
        await self.heartbeat(broker_id, response.broker_epoch, want_fence=True)

    def change(self, topic: str, **fields: Any) -> PartitionChangeRecord:
        return PartitionChangeRecord(
            partition_id=0,
            topic_id=self.topics[topic],
            **fields,
        )

    def fenced(self, broker_id: int) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=self.epochs[broker_id], fenced=1
        )

    def unfenced(self, broker_id: int) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=self.epochs[broker_id], fenced=-1
        )

    async def alter_isr(self, topic: str, isr: list[int], **more: int) -> int:
        """Propose an ISR as the leader; return the error code."""
        partition = self.partition(topic)
        data = AlterPartitionRequest.TopicData
        proposal = data.PartitionData(
            partition_index=0,
            leader_epoch=more.get("leader_epoch", partition.leader_epoch),
            partition_epoch=more.get("partition_epoch", partition.partition_epoch),
            leader_recovery_state=more.get("recovery", 0),
            new_isr_with_epochs=[
                data.PartitionData.BrokerState(
                    broker_id=broker_id,
                    broker_epoch=more.get("member_epoch", self.epochs[broker_id]),
                )
                for broker_id in isr
            ],
        )
        sender = more.get("sender", partition.leader)
        response = await self.request(
            AlterPartitionRequest(
                broker_id=sender,
                broker_epoch=self.epochs[sender],
                topics=[data(topic_id=self.topics[topic], partitions=[proposal])],
            ),
        )
        code: int = response.topics[0].partitions[0].error_code
        return code

    def partition(self, topic: str) -> PartitionRegistration:
        return self.driver.speculative_image.topics.by_id[self.topics[topic]].partitions[0]

    async def set_elr_version(self, level: int) -> None:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="eligible.leader.replicas.version",
            max_version_level=level,
            upgrade_type=1 if level else 2,
        )
        response = await self.request(UpdateFeaturesRequest(feature_updates=[update]))
        assert response.error_code == 0

    async def elect(self, topic: str, kind: int) -> int:
        response = await self.request(
            ElectLeadersRequest(
                election_type=kind,
                topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])],
            ),
        )
        code: int = response.replica_election_results[0].partition_result[0].error_code
        return code

    async def set_config(
        self, kind: int, name: str, key: str, value: str | None
    ) -> tuple[int, str | None]:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        operation = 0 if value is not None else 1
        config = resource.AlterableConfig(name=key, config_operation=operation, value=value)
        request = IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=kind, resource_name=name, configs=[config])]
        )
        (answer,) = (await self.request(request)).responses
        return answer.error_code, answer.error_message


async def test_controlled_stop_moves_leadership_before_the_broker_is_fenced() -> None:
    c = Cluster()
    await c.start()
    await c.beat_all()
    c.new_records()
    answer = await c.heartbeat(3, c.epochs[3], want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert c.new_records() == [
        [
            BrokerRegistrationChangeRecord(
                broker_id=3, broker_epoch=c.epochs[3], in_controlled_shutdown=1
            ),
            c.change("e", isr=[1, 2]),
            c.change("p", isr=[2, 1], leader=2),
        ]
    ]
    waiting = await c.heartbeat(3, c.epochs[3], want_shut_down=True)
    assert not waiting.should_shut_down, "others have not read of it yet"
    await c.beat_all(3)
    c.new_records()
    done = await c.heartbeat(3, c.epochs[3], want_shut_down=True)
    assert done.should_shut_down
    assert c.new_records() == [[c.fenced(3)]]
    again = await c.heartbeat(3, c.epochs[3], want_shut_down=True)
    assert again.should_shut_down, "the answer may have been lost"
    assert c.new_records() == []
    # Kafka refuses a restart until the session of the stopped process expires.
    await c.restart(3, after_clean_stop=True)
    registered, cordoned, unfenced = c.new_records()
    assert [type(record) for record in registered] == [RegisterBrokerRecord]
    assert cordoned == [
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=c.epochs[3], cordoned_log_dirs=[])
    ]
    assert unfenced == [c.unfenced(3)]


async def test_a_stopped_broker_counts_for_the_replicas_of_a_new_topic_once_it_is_fenced() -> None:
    c = Cluster()
    await c.start()
    await c.heartbeat(3, c.epochs[3], want_shut_down=True)
    topic = TOPIC(name="new", num_partitions=1, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic])
    refused = (await c.request(request)).topics[0]
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    await c.beat_all(3)
    done = await c.heartbeat(3, c.epochs[3], want_shut_down=True)
    assert done.should_shut_down
    created = (await c.request(request)).topics[0]
    assert created.error_code == ErrorCode.NONE


async def test_a_silent_broker_loses_leadership_and_isr_then_is_fenced() -> None:
    c = Cluster()
    await c.start()
    await c.die(3)
    assert c.new_records() == [
        [c.change("e", isr=[1, 2]), c.change("p", isr=[2, 1], leader=2), c.fenced(3)]
    ]
    await c.heartbeat(3, c.epochs[3])
    assert c.new_records() == [[c.unfenced(3)]], "the same process is let in again"
    assert await c.alter_isr("e", [1, 2, 3]) == 0
    assert await c.alter_isr("p", [1, 2, 3]) == 0
    assert c.new_records() == [
        [c.change("e", isr=[1, 2, 3])],
        [c.change("p", isr=[1, 2, 3])],
    ]
    assert await c.elect("p", 0) == 0
    assert await c.elect("p", 0) == ErrorCode.ELECTION_NOT_NEEDED
    assert await c.elect("p", 1) == ErrorCode.ELECTION_NOT_NEEDED
    assert c.new_records() == [[c.change("p", leader=3)]]


async def test_the_elr_remembers_who_has_all_records_until_an_unclean_election() -> None:
    c = Cluster()
    await c.start()
    await c.die(3)
    assert await c.elect("p", 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    c.new_records()
    await c.die(2, 3)
    assert c.new_records() == [
        [
            c.change("e", isr=[1], eligible_leader_replicas=[2]),
            c.change("p", isr=[1], leader=1, eligible_leader_replicas=[2]),
            c.fenced(2),
        ]
    ]
    await c.die(1, 2, 3)
    nobody = {
        "isr": [],
        "leader": -1,
        "eligible_leader_replicas": [1, 2],
        "last_known_elr": [1],
    }
    assert c.new_records() == [[c.change("e", **nobody), c.change("p", **nobody), c.fenced(1)]]
    await c.restart(3)
    registered, *unfenced = c.new_records()
    assert len(registered) == 1, "3 was neither in the ISR nor in the ELR"
    assert [r for batch in unfenced for r in batch if isinstance(r, PartitionChangeRecord)] == []
    assert await c.elect("e", 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert await c.elect("e", 1) == 0
    assert c.new_records() == [
        [
            c.change(
                "e",
                isr=[3],
                leader=3,
                leader_recovery_state=1,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        ]
    ]
    await c.restart(2)
    clean_up = c.new_records()[0]
    assert clean_up[0] == c.change("p", eligible_leader_replicas=[1])
    assert isinstance(clean_up[1], RegisterBrokerRecord)
    assert await c.alter_isr("e", [2, 3]) == 0
    assert c.new_records() == [[c.change("e", isr=[2, 3], leader_recovery_state=0)]]
    await c.restart(1)
    registered, *rest = c.new_records()
    assert registered[0] == c.change("p", eligible_leader_replicas=[])
    elected = [r for batch in rest for r in batch if isinstance(r, PartitionChangeRecord)]
    assert elected == [c.change("p", isr=[1], leader=1, leader_recovery_state=1, last_known_elr=[])]


async def test_a_clean_elr_member_leads_again_and_keeps_the_other_in_the_elr() -> None:
    c = Cluster()
    await c.start()
    await c.die(1)
    await c.die(1, 2)
    await c.die(1, 2, 3)
    c.new_records()
    await c.restart(2, after_clean_stop=True)
    registered, *rest = c.new_records()
    assert len(registered) == 1
    elected = [r for batch in rest for r in batch if isinstance(r, PartitionChangeRecord)]
    expected = {
        "isr": [2],
        "leader": 2,
        "eligible_leader_replicas": [3],
        "last_known_elr": [],
    }
    assert elected == [c.change("e", **expected), c.change("p", **expected)]


async def test_setting_min_isr_clears_the_elr_and_removing_it_is_refused() -> None:
    c = Cluster()
    await c.start()
    key = "min.insync.replicas"
    assert await c.set_config(2, "e", key, "1") == (0, None)
    assert await c.set_config(4, "", key, "1") == (0, None)
    assert c.new_records() == [
        [
            ConfigRecord(resource_type=2, resource_name="e", name=key, value="1"),
            ClearElrRecord(topic_name="e"),
        ],
        [
            ConfigRecord(resource_type=4, resource_name="", name=key, value="1"),
            ClearElrRecord(topic_name=""),
        ],
    ]
    assert await c.set_config(4, "", key, None) == (
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    assert await c.set_config(4, "1", key, "1") == (
        ErrorCode.INVALID_CONFIG,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    assert c.new_records() == []


async def test_eligible_leaders_survive_a_change_of_min_isr_while_the_isr_is_empty() -> None:
    c = Cluster()
    await c.start()
    await c.die(3)
    await c.die(2, 3)
    await c.die(1, 2, 3)
    c.new_records()
    key = "min.insync.replicas"
    assert await c.set_config(2, "e", key, "1") == (0, None)
    assert c.new_records() == [
        [
            ConfigRecord(resource_type=2, resource_name="e", name=key, value="1"),
            ClearElrRecord(topic_name="e"),
            c.change("e", eligible_leader_replicas=[1, 2], last_known_elr=[1]),
        ]
    ]
    await c.restart(2, after_clean_stop=True)
    assert c.partition("e").leader == 2


async def test_eligible_leaders_may_lead_once_after_the_feature_is_disabled() -> None:
    c = Cluster()
    await c.start()
    await c.die(3)
    await c.die(2, 3)
    await c.die(1, 2, 3)
    await c.set_elr_version(0)
    await c.restart(2, after_clean_stop=True)
    partition = c.partition("e")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (
        2,
        (1, 2),
        (),
        (),
    )


async def test_a_leader_that_died_before_the_feature_was_enabled_is_the_last_known_one() -> None:
    c = Cluster()
    await c.start()
    await c.set_elr_version(0)
    await c.die(3)
    await c.die(2, 3)
    await c.die(1, 2, 3)
    assert (c.partition("e").leader, c.partition("e").isr) == (-1, (1,))
    await c.set_elr_version(1)
    await c.restart(1)
    assert (c.partition("e").leader, c.partition("e").isr) == (1, (1,))


async def test_the_last_known_leader_may_lead_after_the_feature_is_gone_and_is_forgotten_then() -> (
    None
):
    c = Cluster()
    await c.start()
    await c.die(3)
    await c.die(2, 3)
    await c.die(1, 2, 3)
    for broker_id in (1, 2):
        await c.start_again(broker_id)
    assert (c.partition("e").elr, c.partition("e").last_known_elr) == ((), (1,))
    await c.set_elr_version(0)
    await c.heartbeat(2, c.epochs[2])
    assert c.partition("e").leader == -1
    await c.heartbeat(1, c.epochs[1])
    partition = c.partition("e")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())


async def test_an_elr_from_before_the_feature_was_off_does_not_come_back() -> None:
    """Records committed while it was off are not in the logs of the eligible replicas."""

    c = Cluster()
    await c.start()
    await c.die(3)
    await c.die(2, 3)
    assert c.partition("e").elr == (2,)
    await c.set_elr_version(0)
    await c.restart(3)
    assert await c.alter_isr("e", [1, 3]) == 0
    await c.set_elr_version(1)
    await c.die(1, 2)
    await c.die(1, 2, 3)
    assert 2 not in c.partition("e").elr


async def test_proposed_isrs_are_checked_in_kafkas_order() -> None:
    c = Cluster()
    await c.start()
    code = ErrorCode
    assert await c.alter_isr("e", [1, 2], leader_epoch=9) == code.NOT_CONTROLLER
    assert await c.alter_isr("e", [1, 2], partition_epoch=9) == code.NOT_CONTROLLER
    assert await c.alter_isr("e", [1, 2], leader_epoch=-1) == code.FENCED_LEADER_EPOCH
    assert await c.alter_isr("e", [1, 2], sender=2) == code.INVALID_REQUEST
    assert await c.alter_isr("e", [1, 2], partition_epoch=-1) == code.INVALID_UPDATE_VERSION
    assert await c.alter_isr("e", [1, 1]) == code.INVALID_REQUEST
    assert await c.alter_isr("e", [2, 3]) == code.INVALID_REQUEST
    assert await c.alter_isr("e", [1, 2], recovery=1) == code.INVALID_REQUEST
    assert await c.alter_isr("e", [1, 2], member_epoch=5) == code.INELIGIBLE_REPLICA
    assert c.new_records() == []
    assert await c.alter_isr("e", [1, 2, 3]) == 0, "unchanged is fine and writes nothing"
    assert c.new_records() == []
    await c.die(3)
    c.new_records()
    assert await c.alter_isr("e", [1, 2, 3]) == code.INELIGIBLE_REPLICA


async def test_a_failed_directory_takes_only_its_replicas_along() -> None:
    c = Cluster()
    await c.start()
    bad, good = c.directories(1)
    await c.request(_assign(c, 1, {good: "e", bad: "p"}))
    c.new_records()
    await c.heartbeat(1, c.epochs[1], offline_log_dirs=[bad])
    assert c.new_records() == [
        [
            c.change("p", isr=[3, 2]),
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=c.epochs[1], log_dirs=[good]),
        ]
    ]
    await c.heartbeat(1, c.epochs[1], offline_log_dirs=[bad])
    assert c.new_records() == [], "the broker repeats itself; nothing is new"
    joins = await c.alter_isr("p", [3, 2, 1])
    assert joins == ErrorCode.INELIGIBLE_REPLICA, "the leader has not heard of the failure"
    await c.heartbeat(1, c.epochs[1], cordoned_log_dirs=[good])
    assert c.new_records() == [
        [
            BrokerRegistrationChangeRecord(
                broker_id=1, broker_epoch=c.epochs[1], cordoned_log_dirs=[good]
            )
        ]
    ]
    topic = TOPIC(name="n", num_partitions=1, replication_factor=3)
    (refused,) = (await c.request(CreateTopicsRequest(topics=[topic]))).topics
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_replica_without_a_leader_leads_once_its_directory_is_online() -> None:
    """The disk of a single replica was replaced: the broker has created it anew, elsewhere."""

    c = Cluster()
    await c.start()
    bad, good = c.directories(1)
    topic = TOPIC(name="one", num_partitions=-1, replication_factor=-1, assignments=[
        TOPIC.CreatableReplicaAssignment(broker_ids=[1])])  # fmt: skip
    (created,) = (await c.request(CreateTopicsRequest(topics=[topic]))).topics
    c.topics["one"] = created.topic_id
    await c.request(_assign(c, 1, {bad: "one"}))
    await c.heartbeat(1, c.epochs[1], offline_log_dirs=[bad])
    assert c.partition("one").leader == -1
    c.new_records()
    await c.request(_assign(c, 1, {good: "one"}))
    (assigned, elected) = c.new_records()[0]
    assert assigned == c.change("one", directories=[good])
    assert isinstance(elected, PartitionChangeRecord)
    assert c.partition("one").leader == 1


async def test_an_offline_last_directory_is_no_record() -> None:
    """An empty list of directories means "no change"; the broker stops by itself."""

    c = Cluster()
    await c.start()
    await c.request(_assign(c, 1, {c.directories(1)[0]: "e", c.directories(1)[1]: "p"}))
    c.new_records()
    await c.heartbeat(1, c.epochs[1], offline_log_dirs=c.directories(1))
    assert c.new_records() == [[c.change("e", leader=2, isr=[2, 3]), c.change("p", isr=[3, 2])]]
    await c.heartbeat(1, c.epochs[1], offline_log_dirs=c.directories(1))
    assert c.new_records() == []


async def test_a_broker_that_registers_again_without_a_directory_has_lost_it() -> None:
    c = Cluster()
    await c.start()
    bad, good = c.directories(1)
    await c.request(_assign(c, 1, {bad: "e", good: "p"}))
    c.new_records()
    response = await c.register(1, 101, [good])
    assert (response.error_code, response.broker_epoch) == (0, c.epochs[1])
    (moved, registered) = c.new_records()[0]
    assert moved == c.change("e", leader=2, isr=[2, 3])
    assert isinstance(registered, RegisterBrokerRecord)
    assert (registered.fenced, registered.log_dirs) == (False, [good])


def _assign(c: Cluster, broker_id: int, where: dict[bytes, str]) -> Message:
    from spindle.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

    data = AssignReplicasToDirsRequest.DirectoryData
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=c.epochs[broker_id],
        directories=[
            data(
                id=directory,
                topics=[
                    data.TopicData(
                        topic_id=c.topics[topic],
                        partitions=[data.TopicData.PartitionData(partition_index=0)],
                    )
                ],
            )
            for directory, topic in where.items()
        ],
    )


async def test_unregistering_a_live_broker_moves_its_partitions_first() -> None:
    c = Cluster()
    await c.start()
    assert (await c.request(UnregisterBrokerRequest(broker_id=3))).error_code == 0
    assert c.new_records() == [
        [
            c.change("e", isr=[1, 2]),
            c.change("p", isr=[2, 1], leader=2),
            UnregisterBrokerRecord(broker_id=3, broker_epoch=c.epochs[3]),
        ]
    ]
    answer = await c.heartbeat(3, c.epochs[3])
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    unknown = await c.request(UnregisterBrokerRequest(broker_id=9))
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_an_unregistered_broker_that_comes_back_is_eligible_nowhere() -> None:
    c = Cluster()
    await c.start()
    await c.die(2)
    await c.request(UnregisterBrokerRequest(broker_id=3))
    e = c.publisher.image.topics.by_name["e"].partitions[0]
    assert (e.isr, e.elr) == ((1,), (3,))
    c.new_records()
    # The controller no longer knows its epoch, and the broker may have empty disks.
    again = await c.register(3, 999, c.directories(3), previous_broker_epoch=c.epochs[3])
    ((*changes, registered),) = c.new_records()
    assert changes == [
        c.change("e", eligible_leader_replicas=[]),
        c.change("p", eligible_leader_replicas=[]),
    ]
    assert isinstance(registered, RegisterBrokerRecord)
    assert registered.broker_epoch == again.broker_epoch


async def test_time_in_which_the_controller_stood_still_is_nobodys_silence() -> None:
    c = Cluster()
    await c.start()
    c.now_ms += 60_000
    c.driver.tasks.run_due()
    assert c.new_records() == []
    c.pass_time(8000)
    await c.beat_all(3)
    c.pass_time(3000)
    (batch,) = c.new_records()
    assert batch[-1] == c.fenced(3), "now it has been silent"


async def test_a_session_ends_as_soon_as_it_has_lasted_its_time() -> None:
    c = Cluster()
    await c.start()
    c.pass_time(700)
    await c.heartbeat(3, c.epochs[3])
    c.pass_time(4321)
    await c.beat_all(3)
    c.pass_time(c.settings.broker_session_timeout_ms - 4321)
    assert c.new_records() == []
    c.pass_time(1)
    ((*_, fenced),) = c.new_records()
    assert fenced == c.fenced(3)


async def test_a_broker_with_very_many_partitions_leaves_them_bit_by_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_heartbeat, "MAX_PARTITIONS_PER_FENCING", 1)

    c = Cluster()
    await c.start()
    await c.die(3)
    left_e, left_p = c.change("e", isr=[1, 2]), c.change("p", isr=[2, 1], leader=2)
    assert c.new_records() == [[left_e], [left_p, c.fenced(3)]]

    await c.die(1)
    ((*moved, fenced),) = c.new_records()[-1:]
    assert (len(moved), fenced) == (1, c.fenced(1))


async def test_a_broker_leaves_more_partitions_when_the_first_change_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_heartbeat, "MAX_PARTITIONS_PER_FENCING", 1)

    c = Cluster()
    await c.start()
    c.pass_time(3001)
    await c.beat_all(3)
    c.pass_time(3001)
    await c.beat_all(3)
    c.quorum.commits_at_once = False
    c.pass_time(5000)
    assert c.new_records() == [[c.change("e", isr=[1, 2])]]
    c.quorum.commit()
    c.pass_time(1)
    assert c.new_records() == [[c.change("p", isr=[2, 1], leader=2), c.fenced(3)]]


async def test_a_broker_that_is_heard_of_while_it_leaves_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_heartbeat, "MAX_PARTITIONS_PER_FENCING", 1)

    c = Cluster()
    await c.start()
    for _ in range(3):
        c.pass_time(2900)
        await c.beat_all(3)
    while not (first := c.new_records()):
        c.pass_time(1)
    await c.heartbeat(3, c.epochs[3])
    c.pass_time(5000)
    assert first == [[c.change("e", isr=[1, 2])]]
    assert c.new_records() == []
    assert c.publisher.image.cluster.is_active(3)


async def test_a_stopping_broker_leaves_very_many_partitions_over_several_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_heartbeat, "MAX_MOVES_PER_HEARTBEAT", 1)

    c = Cluster()
    await c.start()
    begun = BrokerRegistrationChangeRecord(
        broker_id=3, broker_epoch=c.epochs[3], in_controlled_shutdown=1
    )
    left_e, left_p = c.change("e", isr=[1, 2]), c.change("p", isr=[2, 1], leader=2)
    for records in ([begun, left_e], [left_p]):
        answer = await c.heartbeat(3, c.epochs[3], want_shut_down=True)
        assert (answer.is_fenced, answer.should_shut_down) == (False, False)
        assert c.new_records() == [records]
    await c.beat_all(3)
    answer = await c.heartbeat(3, c.epochs[3], want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert c.new_records() == [[c.fenced(3)]]


async def test_very_many_leaderless_partitions_are_led_by_a_returned_broker_bit_by_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def returned() -> list[list[Message]]:
        c = Cluster()
        await c.start()
        await c.die(1, 2, 3)
        c.pass_time(5000)
        topics = c.driver.speculative_image.topics.by_id.values()
        assert [topic.partitions[0].leader for topic in topics] == [-1, -1]
        response = await c.register(2, 999, c.directories(2), previous_broker_epoch=c.epochs[2])
        c.new_records()
        await c.heartbeat(2, response.broker_epoch)
        c.pass_time(1200)
        return c.new_records()

    (at_once,) = await returned()
    monkeypatch.setattr(broker_heartbeat, "MAX_MOVES_PER_HEARTBEAT", 1)
    first, second = await returned()
    *begin, cordoned = at_once
    assert [*first, *second] == [*begin[:2], cordoned, *begin[2:]]
    assert len(second) == 1
