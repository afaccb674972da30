"""Audits name the command that copies a damaged replica again, where that is right."""

from dataclasses import replace
from pathlib import Path

import pytest

from spindle.audit.findings import AuditFinding, FindingKind, RepairKind
from spindle.audit.placement import ClusterPlacement, PlacedPartition, PlacedTopic
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ClosingState, ReplicaPlace
from spindle.audit.report import AuditListing, audit_report
from spindle.common.ids import TopicPartition
from spindle.log.formats.names import LogKind

ID = b"i" * 16
PATH = "/d/orders-3"
PLACE = ReplicaPlace(
    Path(PATH), TopicPartition("orders", 3), LogKind.CURRENT, ClosingState.IN_USE, 2
)
DAMAGE = AuditFinding(FindingKind.BATCH_CHECKSUM, f"{PATH}/0.log", "it is", replica=PATH)


def placed(leader: int, replicas: tuple[int, ...] = (1, 2)) -> ClusterPlacement:
    partition = PlacedPartition(replicas, (ID,) * len(replicas), replicas, leader)
    return ClusterPlacement({ID: PlacedTopic("orders", ID, None, {3: partition})})


def repair(place: ReplicaPlace = PLACE, placement: ClusterPlacement | None = None) -> str:
    replica = AuditedReplica(place, ID, 0, 10, 0, 100, 1, (DAMAGE,))
    (finding,) = audit_report(AuditListing((), (place,)), [replica], placement, ()).findings
    assert finding.document()["repair"] in finding.sentence
    return finding.repair


@pytest.mark.parametrize("placement", [None, placed(1)])
def test_a_follower_is_rebuilt(placement: ClusterPlacement | None) -> None:
    assert repair(placement=placement).startswith("run `spindle disks rebuild 2 orders-3` while")


def test_a_leader_lets_another_replica_lead_first() -> None:
    text = repair(placement=placed(2))
    assert text.startswith("let another replica lead first")
    assert "then run `spindle disks rebuild 2 orders-3`" in text


@pytest.mark.parametrize(
    ("place", "placement"),
    [
        (PLACE, placed(2, (2,))),
        (PLACE, placed(1, (1, 3))),
        (replace(PLACE, node_id=None), None),
        (replace(PLACE, kind=LogKind.FUTURE), None),
        (replace(PLACE, partition=TopicPartition("__cluster_metadata", 0)), None),
    ],
)
def test_no_command_copies_other_replicas(
    place: ReplicaPlace, placement: ClusterPlacement | None
) -> None:
    assert repair(place, placement) == RepairKind.COPY_AGAIN.value
