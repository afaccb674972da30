"""Replicas of several nodes against each other, and disks against the metadata of the cluster."""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from broker_directories import PLAIN, TRANSACTIONAL, BrokerDirectory, clean_directory

from spindle.audit.findings import AuditFinding
from spindle.audit.placement import ClusterPlacement, PlacedPartition, PlacedTopic
from spindle.audit.repairs import repair_plan, repairs_of
from spindle.audit.run import run_audit
from spindle.cli.audit.screen import report_lines
from spindle.common.ids import METADATA_PARTITION
from spindle.common.uuids import uuid_text
from spindle.log.formats.meta_properties import parse_meta_properties
from spindle.protocol.records.batch import batches, computed_crc

NODES = (1, 2, 3)


def topic_id(name: str) -> bytes:
    return bytes([len(name)] * 16)


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """The directories of three nodes with the same records."""
    return [clean_directory(tmp_path / f"n{node}", node_id=node) for node in NODES]


@pytest.fixture
def placement(roots: list[Path]) -> ClusterPlacement:
    ids = []
    for root in roots:
        file = root / "meta.properties"
        directory_id = parse_meta_properties(file.read_bytes(), str(file)).directory_id
        assert directory_id is not None
        ids.append(directory_id)
    partition = PlacedPartition(NODES, tuple(ids), isr=(1, 2, 3), leader=2)
    return ClusterPlacement(
        {
            topic_id(topic): PlacedTopic(topic, topic_id(topic), None, {number: partition})
            for topic, number in (PLAIN, TRANSACTIONAL)
        }
    )


def found_in(roots: list[Path], placement: ClusterPlacement | None = None) -> list[AuditFinding]:
    report = run_audit(roots, load_placement=lambda: placement, recheck_ms=0)
    assert not report.findings or repair_plan(repairs_of(report))
    return list(report.findings)


def changed(
    placement: ClusterPlacement,
    name: str,
    change: Callable[[PlacedPartition], PlacedPartition],
) -> ClusterPlacement:
    topic = placement.topics[topic_id(name)]
    partitions = {number: change(partition) for number, partition in topic.partitions.items()}
    changed_topic = replace(topic, partitions=partitions)
    return ClusterPlacement({**placement.topics, topic_id(name): changed_topic})


def rewrite_a_batch(root: Path) -> None:
    """Change a record, and the checksum with it, so that only another replica can tell."""
    path = sorted((root / str(PLAIN)).glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    position, header = list(batches(data))[3]
    data[position + header.size_bytes - 1] ^= 1
    struct.pack_into(">I", data, position + 17, computed_crc(data, position, header))
    path.write_bytes(data)


def forget_checkpoints(root: Path) -> None:
    """Leave a directory as a killed broker does, and without the recovery points of its logs."""
    (root / ".kafka_cleanshutdown").unlink()
    path = root / "recovery-point-offset-checkpoint"
    path.write_text("0\n0\n")
    os.utime(path, (1, 1))  # before the logs were created


def test_a_directory_belongs_to_the_node_that_registered_it(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    partition = placement.partition(topic_id(PLAIN.topic), PLAIN.partition)
    assert partition is not None
    registered = dict(zip(partition.directories, (1, 5, 3), strict=True))
    (finding,) = found_in(roots, replace(placement, nodes=registered))
    assert finding.kind.text == "directory-identity"
    assert finding.path == str(roots[1] / "meta.properties")
    assert "node.id is 2, but node 5 has registered" in finding.evidence


def test_a_directory_whose_id_nobody_has_shows_by_the_places_of_its_replicas(
    roots: list[Path], placement: ClusterPlacement, tmp_path: Path
) -> None:
    partition = placement.partition(topic_id(PLAIN.topic), PLAIN.partition)
    assert partition is not None
    second = BrokerDirectory(tmp_path / "second", node_id=2)
    second.close()
    nodes = {**dict(zip(partition.directories, NODES, strict=True)), second.directory_id: 2}
    known = replace(placement, nodes=nodes)
    directories = [*roots, second.path]
    assert found_in(directories, known) == []
    file = roots[1] / "meta.properties"
    file.write_text(
        file.read_text().replace(uuid_text(partition.directories[1]), uuid_text(b"x" * 16))
    )
    kinds = [(finding.kind.text, finding.path) for finding in found_in(directories, known)]
    assert ("directory-identity", str(file)) in kinds
    # A failed disk that comes back has no registered id: the others have taken its replicas.
    kinds = [(finding.kind.text, finding.path) for finding in found_in(roots, known)]
    assert ("directory-identity", str(file)) not in kinds


def test_equal_replicas_where_the_metadata_places_them_are_in_order(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    assert found_in(roots) == []
    assert found_in(roots, placement) == []


def test_the_replica_that_two_others_contradict_is_wrong(roots: list[Path]) -> None:
    rewrite_a_batch(roots[0])
    (finding,) = found_in(roots)
    assert finding.kind.text == "replica-differs"
    assert finding.path == str(roots[0] / str(PLAIN))
    assert "agrees with another replica" in finding.evidence


def test_a_leader_that_two_replicas_in_sync_contradict_is_wrong(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    led_by_1 = changed(placement, PLAIN.topic, lambda each: replace(each, leader=1))
    rewrite_a_batch(roots[0])
    (finding,) = found_in(roots, led_by_1)
    assert finding.path == str(roots[0] / str(PLAIN))
    assert "agrees with another replica" in finding.evidence
    alone = changed(led_by_1, PLAIN.topic, lambda each: replace(each, isr=(1,)))
    (finding,) = found_in(roots, alone)
    assert finding.path == str(roots[0] / str(PLAIN))


def test_two_replicas_with_the_same_epochs_are_undecided_whoever_leads(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    rewrite_a_batch(roots[0])
    for leader in (1, 2):
        led = changed(placement, PLAIN.topic, lambda each: replace(each, leader=leader))  # noqa: B023
        (finding,) = found_in(roots[:2], led)
        assert finding.kind.text == "replica-undecided"


def test_a_damaged_replica_is_not_right_even_if_it_leads(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    path = sorted((roots[1] / str(PLAIN)).glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[18] ^= 1
    path.write_bytes(data)
    kinds = {(finding.kind.text, finding.replica) for finding in found_in(roots, placement)}
    replica = str(roots[1] / str(PLAIN))
    assert kinds == {("batch-checksum", replica), ("replica-differs", replica)}


def test_a_replica_of_a_deleted_topic_is_orphaned(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    without = {key: value for key, value in placement.topics.items() if key != topic_id("orders")}
    findings = found_in(roots, ClusterPlacement(without))
    assert [finding.kind.text for finding in findings] == ["replica-orphaned"] * 3
    assert "has no topic orders" in findings[0].evidence


def test_a_replica_of_an_earlier_topic_has_a_stale_id(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    topic = placement.topics[topic_id("orders")]
    topics = {**placement.topics, b"n" * 16: replace(topic, topic_id=b"n" * 16)}
    del topics[topic_id("orders")]
    findings = found_in(roots, ClusterPlacement(topics))
    kinds = [finding.kind.text for finding in findings]
    assert sorted(kinds) == ["replica-missing"] * 3 + ["topic-id-stale"] * 3


def test_a_replica_on_a_node_that_should_not_have_it_is_orphaned(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    def on_two(each: PlacedPartition) -> PlacedPartition:
        return PlacedPartition(NODES[:2], each.directories[:2], NODES[:2], 1)

    (finding,) = found_in(roots, changed(placement, "orders", on_two))
    assert finding.kind.text == "replica-orphaned"
    assert finding.path == str(roots[2] / str(PLAIN))
    assert "on nodes 1, 2, not on node 3" in finding.evidence


def test_a_replica_in_another_directory_of_its_node_has_a_wrong_id(
    roots: list[Path], placement: ClusterPlacement, tmp_path: Path
) -> None:
    other = clean_directory(tmp_path / "empty", node_id=1)
    for name in (PLAIN, TRANSACTIONAL):
        (other / str(name)).rename(tmp_path / f"gone-{name}")
    forget_checkpoints(other)
    forget_checkpoints(roots[0])
    (roots[0] / str(PLAIN)).rename(other / str(PLAIN))
    (finding,) = found_in([*roots, other], placement)
    assert finding.kind.text == "directory-assignment"
    assert finding.path == str(other / str(PLAIN))
    assert f"in {roots[0]}, but it is in {other}" in finding.evidence


def test_a_replica_that_the_metadata_expects_is_missing(
    roots: list[Path], placement: ClusterPlacement, tmp_path: Path
) -> None:
    forget_checkpoints(roots[0])
    (roots[0] / str(PLAIN)).rename(tmp_path / "gone")
    (finding,) = found_in(roots, placement)
    assert finding.kind.text == "replica-missing"
    assert "the metadata places orders-0 in this directory" in finding.evidence


def test_replicas_with_a_vast_gap_are_compared_at_once(roots: list[Path]) -> None:
    for root in roots:
        last = sorted((root / str(PLAIN)).glob("*.log"))[-1]
        base = 2**60
        data = bytearray(last.read_bytes())
        position, header = next(iter(batches(data)))
        struct.pack_into(">q", data, position, base)
        target = last.with_name(f"{base:020d}.log")
        target.write_bytes(data[: position + header.size_bytes])
        (root / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {2**61}\n")
    texts = {finding.kind.text for finding in found_in(roots)}
    assert "offset-gap" in texts
    assert "replica-differs" not in texts


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "It is the only replica of the partition"),
        (3, "only if another replica of the partition is in sync"),
    ],
)
def test_the_plan_says_which_replica_is_the_only_one(
    roots: list[Path], placement: ClusterPlacement, count: int, said: str
) -> None:
    def placed(each: PlacedPartition) -> PlacedPartition:
        return PlacedPartition(NODES[:count], each.directories[:count], NODES[:count], 1)

    path = sorted((roots[0] / str(PLAIN)).glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    for position, _ in list(batches(bytes(data))):
        data[position + 70] ^= 1
    path.write_bytes(data)
    known = changed(placement, PLAIN.topic, placed)
    report = run_audit(roots[:1], load_placement=lambda: known, recheck_ms=0)
    assert len(report.findings) > 5
    plan = "\n".join(repair_plan(repairs_of(report)))
    assert said in plan
    assert plan.count("batch-checksum") == 1
    assert "more places of the file" in plan
    shown = [line.text for line in report_lines(report, 1.0)]
    assert sum("batch-checksum" in text for text in shown) == 1
    assert any("more places of the file" in text for text in shown)


def test_the_plan_says_which_node_is_the_only_voter(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path / "d1")
    log = directory.create(METADATA_PARTITION)
    directory.append(log, 5)
    directory.close()
    segment = next(Path(log.path).glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    for voters, said in (((1,), "It is the only voter"), ((1, 2, 3), "Only if another voter")):
        known = ClusterPlacement({}, voters=voters)
        report = run_audit([directory.path], load_placement=lambda: known, recheck_ms=0)  # noqa: B023
        assert said in "\n".join(repair_plan(repairs_of(report)))
