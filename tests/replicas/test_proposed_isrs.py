"""When a leader proposes an ISR, and when it does so again."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.partition import Partition
from spindle.replicas.replication_context import ReplicationContext
from spindle.replication.leader_state import IsrProposal

TOPIC_ID = bytes([7] * 16)
EPOCH_OF_2 = 5
SESSION = SimpleNamespace(last_used_ms=0)


class Leader:
    """Broker 1 leads a partition without records; broker 2 is alive and not in sync."""

    def __init__(self) -> None:
        self.registration = PartitionRegistration(
            replicas=(1, 2),
            directories=(bytes(16), bytes(16)),
            isr=(1,),
            removing_replicas=(),
            adding_replicas=(),
            elr=(),
            last_known_elr=(),
            leader=1,
            leader_recovery_state=0,
            leader_epoch=0,
            partition_epoch=0,
        )
        other = SimpleNamespace(
            is_active=True, epoch=EPOCH_OF_2, has_online_directory=lambda directory: True
        )
        image = SimpleNamespace(
            cluster=SimpleNamespace(brokers={2: other}),
            topics=SimpleNamespace(partition=lambda topic_id, index: self.registration),
        )
        self.proposals: list[IsrProposal] = []
        context = ReplicationContext(
            broker_id=1,
            metadata=cast(Any, SimpleNamespace(image=image)),
            steady_ms=lambda: 0,
            max_lag_ms=1_000,
            propose=lambda partition, proposal: self.proposals.append(proposal),
        )
        log = SimpleNamespace(log_end_offset=0, high_watermark=0, log_start_offset=0)
        self.partition = Partition(
            TopicPartition("t", 0),
            TOPIC_ID,
            cast(Any, log),
            cast(Any, SimpleNamespace(is_offline=False)),
            context,
        )
        self.partition.become_leader(self.registration, 1)

    def learn(self, **changes: Any) -> None:
        """Newer metadata of the same leader epoch."""
        epoch = self.registration.partition_epoch + 1
        self.registration = replace(self.registration, partition_epoch=epoch, **changes)
        self.partition.become_leader(self.registration, 1)


def test_a_proposal_for_an_older_state_is_made_again_for_the_newer_one() -> None:
    leader = Leader()
    leader.partition.follower_fetched(2, 0, 0, EPOCH_OF_2, SESSION)
    assert [(p.isr, p.partition_epoch) for p in leader.proposals] == [((1, 2), 0)]
    # Something else changed meanwhile, and the follower, which is idle, says nothing more.
    leader.learn(directories=(bytes([9] * 16), bytes(16)))
    leader.partition.isr_refused(leader.proposals[0], ErrorCode.INVALID_UPDATE_VERSION)
    assert [(p.isr, p.partition_epoch) for p in leader.proposals] == [((1, 2), 0), ((1, 2), 1)]
    leader.partition.isr_committed(leader.proposals[1], 0, 2, (1, 2))
    leader.learn(isr=(1, 2))
    assert len(leader.proposals) == 2


def test_the_refusal_may_come_before_the_metadata() -> None:
    leader = Leader()
    leader.partition.follower_fetched(2, 0, 0, EPOCH_OF_2, SESSION)
    leader.partition.isr_refused(leader.proposals[0], ErrorCode.INVALID_UPDATE_VERSION)
    assert len(leader.proposals) == 1
    leader.learn()
    assert [p.partition_epoch for p in leader.proposals] == [0, 1]
