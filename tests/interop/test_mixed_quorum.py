"""Metadata quorums of Apache Kafka's controllers and Spindle's together.

Each kind leads in turn. The records that were written under one leader are there under the next,
all logs are equal byte for byte, and an empty controller starts from a snapshot of the other kind.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from peers.java_tools import JavaTools, ToolResult
from peers.quorum import (
    CHANGE_LIMIT_S,
    METADATA_FOLDER,
    ControllerQuorum,
    QuorumView,
    ask_node,
)
from waiting import wait_for, wait_until

from spindle.metadata_log.committed import decode_batch
from spindle.metadata_log.snapshots import SUFFIX, read_snapshot
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from spindle.protocol.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from spindle.protocol.records.batch import batches

SMALL_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.max.idle.interval.ms": "100",
}


class MixedQuorum(ControllerQuorum):
    """A quorum, and Kafka's tools for it."""

    tools: JavaTools

    def run(self, tool: str, *words: str) -> ToolResult:
        return self.tools.run(tool, "--bootstrap-controller", self.running, *words)

    @property
    def running(self) -> str:
        return ",".join(node.controller for node in self.nodes.values() if node.alive)

    def of_kind(self, kind: str) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.kind == kind]

    def let_lead(self, kind: str) -> QuorumView:
        """Stop the others until a controller of this kind leads; then start all again.

        Leaders are lost in both ways: one is stopped in order, the next is killed.
        """
        is_orderly = True
        while self.nodes[(view := self.settled()).leader_id].kind != kind:
            gone = self.nodes[view.leader_id]
            if is_orderly:
                gone.stop()
            else:
                gone.kill()
            is_orderly = not is_orderly
            if len(view.voters) > 2:
                self.leader(other_than=view.leader_id)
            gone.start()
        return view

    def write_settings(self, name: str) -> None:
        """Write records of several kinds through the active controller, of either kind."""
        self.run(
            "configs", "--entity-type", "brokers", "--entity-default",
            "--alter", "--add-config", f"log.cleaner.threads={len(name)}",
        ).check()  # fmt: skip
        # The tool asks controllers for brokers' settings alone.
        leader = self.nodes[self.leader().leader_id].controller
        credential = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        changed = ask_node(leader, AlterUserScramCredentialsRequest(upsertions=[credential]))
        assert [result.error_code for result in changed.results] == [0]
        entry = AlterClientQuotasRequest.EntryData(
            entity=[
                AlterClientQuotasRequest.EntryData.EntityData(
                    entity_type="client-id", entity_name=name
                )
            ],
            ops=[AlterClientQuotasRequest.EntryData.OpData(key="producer_byte_rate", value=1000.0)],
        )
        changed = ask_node(leader, AlterClientQuotasRequest(entries=[entry]))
        assert [result.error_code for result in changed.entries] == [0]

    def status(self) -> dict[str, str]:
        lines = self.run("metadata-quorum", "describe", "--status").check().lines
        return dict(line.split(":", 1) for line in lines)

    def replicas(self) -> dict[int, str]:
        """Return the role of each node id, as the tool prints them."""
        lines = self.run("metadata-quorum", "describe", "--replication").check().lines
        return {int(row[0]): row[-1] for row in map(str.split, lines[1:])}

    def upgrade_voters(self) -> None:
        """Upgrade to kraft.version 1; refused until all followers have sent a new leader their
        directories (2 s)."""
        wait_for(
            lambda: self.run("features", "upgrade", "--feature", "kraft.version=1"),
            lambda done: done.exit_code == 0,
            limit_s=CHANGE_LIMIT_S,
            pause_s=0.2,
        )

    def log(self, node_id: int) -> dict[int, bytes]:
        """Return the bytes of each batch of a controller's log, by base offset."""
        log: dict[int, bytes] = {}
        for segment in sorted(self.metadata_folder(node_id).glob("*.log")):
            data = segment.read_bytes()
            for position, header in batches(data):
                log[header.base_offset] = data[position : position + header.size_bytes]
        return log

    def records(self, node_id: int) -> list[object]:
        data = b"".join(batch for _, batch in sorted(self.log(node_id).items()))
        return [
            record
            for position, header in batches(data)
            for record in decode_batch(data, position, header).records
        ]

    def stop(self) -> None:
        """Stop all controllers, the leader last, so that none waits for a majority."""
        leader_id = self.settled().leader_id
        for node_id in sorted(self.nodes, key=lambda node_id: node_id == leader_id):
            self.nodes[node_id].stop(limit_s=60)


class MakeQuorum(Protocol):
    """Builds and starts a quorum; stops it at the end of the test."""

    def __call__(self, kinds: str, *, is_dynamic: bool = False) -> MixedQuorum: ...


@pytest.fixture
def make_quorum(tmp_path: Path, java_tools: JavaTools) -> Iterator[MakeQuorum]:
    made: list[MixedQuorum] = []

    def make(kinds: str, *, is_dynamic: bool = False) -> MixedQuorum:
        quorum = MixedQuorum(
            tmp_path, kinds.split(), is_dynamic=is_dynamic, overrides=SMALL_SNAPSHOTS
        )
        quorum.tools = java_tools
        made.append(quorum)
        quorum.format()
        quorum.start()
        return quorum

    try:
        yield make
    finally:
        for quorum in made:
            quorum.remove()


def assert_same_logs(quorum: MixedQuorum) -> None:
    """Assert that the logs of two controllers have the same bytes at the offsets that both have."""
    logs = [quorum.log(node_id) for node_id in quorum.nodes]
    for other in logs[1:]:
        common = logs[0].keys() & other.keys()
        assert common, "the logs have nothing in common"
        begin, end = max(min(logs[0]), min(other)), min(max(logs[0]), max(other))
        assert common == {at for at in logs[0].keys() | other.keys() if begin <= at <= end}
        assert [at for at in sorted(common) if logs[0][at] != other[at]] == []


def assert_settings_are_there(quorum: MixedQuorum, names: set[str]) -> None:
    for node_id in quorum.nodes:
        records = known_records(quorum, node_id)
        assert {r.name for r in records if isinstance(r, UserScramCredentialRecord)} == names
        quotas = [r for r in records if isinstance(r, ClientQuotaRecord)]
        assert {entity.entity_name for r in quotas for entity in r.entity} == names
        threads = [r for r in records if isinstance(r, ConfigRecord) and r.name.endswith("threads")]
        assert threads
        assert registered(records) == set(quorum.nodes)


def known_records(quorum: MixedQuorum, node_id: int) -> list[object]:
    """Return the records of the log, and of the snapshots that replaced its beginning."""
    return quorum.records(node_id) + [
        record
        for path in snapshots(quorum, node_id)
        for batch in read_snapshot(path.read_bytes(), path.name)
        for record in batch.records
    ]


def registered(records: list[object]) -> set[int]:
    return {r.controller_id for r in records if isinstance(r, RegisterControllerRecord)}


def wait_for_registrations(quorum: MixedQuorum) -> None:
    """Wait until all are registered; one that met a change of leaders registers again later."""
    wait_for(
        lambda: registered(known_records(quorum, quorum.settled().leader_id)),
        lambda controllers: controllers == set(quorum.nodes),
        "each controller is registered",
        limit_s=CHANGE_LIMIT_S,
        pause_s=0.1,
    )


def empty_disk(quorum: MixedQuorum, node_id: int) -> None:
    node = quorum.nodes[node_id]
    node.stop()
    shutil.rmtree(node.log_dirs[0])
    node.format()


@pytest.mark.parametrize("kinds", ["kafka kafka spindle", "spindle spindle kafka"])
def test_each_kind_leads_and_a_lone_one_upgrades_the_voters(
    make_quorum: MakeQuorum, kinds: str
) -> None:
    """Static voters; then the kind in the majority puts them into the log (kraft.version 1)."""
    quorum = make_quorum(kinds)
    major, minor = kinds.split()[0], kinds.split()[-1]
    names = set()
    for kind in (minor, major):
        view = quorum.let_lead(kind)
        quorum.write_settings(f"under-{kind}")
        names.add(f"under-{kind}")
        assert int(quorum.status()["LeaderId"]) == view.leader_id
        roles = quorum.replicas()
        assert roles.pop(view.leader_id) == "Leader"
        assert set(roles.values()) == {"Follower"}
        shown = quorum.run("configs", "--entity-type", "brokers", "--entity-default", "--describe")
        assert f"log.cleaner.threads={len(f'under-{kind}')}" in shown.check().stdout

    assert '"directoryId"' not in quorum.status()["CurrentVoters"]
    quorum.upgrade_voters()
    assert quorum.status()["CurrentVoters"].count('"directoryId"') == 3
    wait_for_registrations(quorum)
    quorum.stop()
    assert_same_logs(quorum)
    assert_settings_are_there(quorum, names)


def test_an_empty_controller_begins_with_the_snapshot_of_the_other_kind(
    make_quorum: MakeQuorum,
) -> None:
    quorum = make_quorum("spindle kafka")
    for leader, empty in (("spindle", 2), ("kafka", 1)):
        quorum.let_lead(leader)
        quorum.write_settings(f"under-{leader}")
        wait_for_snapshot(quorum, quorum.settled())
        empty_disk(quorum, empty)
        quorum.nodes[empty].start()
        quorum.settled()
        start = min(int(path.stem) for path in quorum.metadata_folder(empty).glob("*.log"))
        assert start > 0
        fetched = snapshots(quorum, empty)[0]
        assert int(fetched.name.split("-")[0]) == start
        names = {
            record.name
            for batch in read_snapshot(fetched.read_bytes(), fetched.name)
            for record in batch.records
            if isinstance(record, UserScramCredentialRecord)
        }
        assert f"under-{leader}" in names
    quorum.stop()
    assert_same_logs(quorum)


def wait_for_snapshot(quorum: MixedQuorum, view: QuorumView) -> None:
    """Wait for a snapshot; the records of an idle controller fill the log until one is due."""
    wait_until(
        lambda: any(
            int(path.name.split("-")[0]) >= view.high_watermark
            for path in snapshots(quorum, view.leader_id)
        ),
        "the leader has written a snapshot",
        limit_s=CHANGE_LIMIT_S,
    )


def snapshots(quorum: MixedQuorum, node_id: int) -> list[Path]:
    return sorted((quorum.nodes[node_id].log_dirs[0] / METADATA_FOLDER).glob(f"*{SUFFIX}"))


def test_controllers_of_both_kinds_come_and_go(make_quorum: MakeQuorum) -> None:
    """The voters are in the log from the start; each kind changes the set as leader."""
    quorum = make_quorum("kafka spindle", is_dynamic=True)
    newcomer = quorum.add(3, "spindle")
    quorum.configure()
    newcomer.format("--no-initial-controllers")
    newcomer.start()
    for leader in ("kafka", "spindle"):
        quorum.let_lead(leader)
        quorum.settled()
        quorum.tools.run(
            "metadata-quorum",
            "--command-config", str(newcomer.properties_file),
            "--bootstrap-controller", quorum.running,
            "add-controller",
        ).check()  # fmt: skip
        assert set(quorum.leader().voters) == {1, 2, 3}
        quorum.run(
            "metadata-quorum", "remove-controller",
            "--controller-id", "3",
            "--controller-directory-id", directory_id(newcomer.log_dirs[0]),
        ).check()  # fmt: skip
        assert set(quorum.leader().voters) == {1, 2}
    quorum.stop()
    assert_same_logs(quorum)


def directory_id(directory: Path) -> str:
    lines = (directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]
