"""franz-go: the Go client and its administration client (kadm), in the program in go/."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from peers.clients import create
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair
from peers.franz import BUILD_LIMIT_S, franz_program
from peers.node import Node
from peers.samples import CODECS

LIMIT_S = 40.0
# The first test waits for the compiler, which may have to compile the client's packages as well.
pytestmark = pytest.mark.timeout(BUILD_LIMIT_S + LIMIT_S)
SAMPLES = 100
RELEASE = "v4.4"
# Kafka 4 serves clients since 2.1; 2.8 brings topic ids; 3.6 is older than fetches by id alone.
OLDER_RELEASES = ["v2.1", "v2.8", "v3.6"]

# APIs that docs/reference/differences.md names: each must be absent, not partly implemented.
NOT_SERVED = {
    "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge",
    "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
    "DeleteShareGroupState", "ReadShareGroupStateSummary", "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "StreamsGroupHeartbeat",
    "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate",
}  # fmt: skip

Franz = Callable[..., list[str]]


@pytest.fixture(scope="session")
def program() -> Path:
    return franz_program()


@pytest.fixture
def franz(program: Path) -> Franz:
    def run(
        node: Node, script: str, topic: str, *arguments: str, release: str = RELEASE
    ) -> list[str]:
        """Return the lines that one script prints, as a client of a release of Kafka."""
        done = subprocess.run(
            [str(program), "-as", release, script, node.bootstrap, topic, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{node.kind}: {done.stdout[-4000:]}\n{done.stderr[:4000]}"
        return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]

    return run


def fill(
    franz: Franz,
    node: Node,
    topic: str,
    codec: str = "none",
    acks: str = "all",
    kind: str = "idempotent",
) -> list[str]:
    """Create a topic of two partitions with the samples of the Go program."""
    create(node, topic, 2)
    return franz(node, "produce", topic, codec, acks, kind, str(FIRST_TIMESTAMP_MS))


@pytest.mark.parametrize(
    ("acks", "kind"), [("all", "idempotent"), ("all", "plain"), ("1", "plain"), ("0", "plain")]
)
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    pair: Pair, franz: Franz, codec: str, acks: str, kind: str
) -> None:
    topic = f"franz-{codec}-{acks}-{kind}"

    def script(node: Node) -> Answer:
        return [fill(franz, node, topic, codec, acks, kind), franz(node, "consume", topic)]

    sent, received = pair.compare(script)
    assert len(sent) == len(received) == SAMPLES
    assert sum(f"idempotent {str(kind == 'idempotent').lower()}" in line for line in received) == (
        SAMPLES
    )


def test_positions(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        fill(franz, node, "franz-seek", "zstd")
        return franz(node, "seek", "franz-seek", str(FIRST_TIMESTAMP_MS))

    lines = pair.compare(script)
    assert lines[0] == "exact [45 46 47 48 49]"
    assert lines[1] == "before the end [47 48 49]"


def test_two_members_share_and_resume(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        create(node, "franz-group", 4)
        return franz(node, "group", "franz-group", "franz-members")

    lines = pair.compare(script)
    assert "together [0 1 2 3] changes 6 2" in lines
    assert sum(line.startswith("committed ") for line in lines) == 4
    assert "delete with members: NON_EMPTY_GROUP" in lines


def test_static_member(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        create(node, "franz-static", 4)
        return franz(node, "static", "franz-static", "franz-static-members")

    assert "leave one done" in pair.compare(script)


def test_committed_offsets(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        create(node, "franz-commits", 3)
        return franz(node, "commits", "franz-commits", "franz-commits-group")

    lines = pair.compare(script)
    assert 'committed franz-commits 2 20 epoch 0 "note ünï 2" done' in lines


def test_offsets_by_time(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        fill(franz, node, "franz-times", "lz4")
        return franz(node, "times", "franz-times", str(FIRST_TIMESTAMP_MS))

    lines = pair.compare(script)
    assert "  franz-times 0 50 -1 epoch 0 done" in lines


def test_deleted_records(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        fill(franz, node, "franz-delete")
        return franz(node, "delete", "franz-delete")

    lines = pair.compare(script)
    assert lines[-1] == "starts 20 50"


def test_log_directories(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        fill(franz, node, "franz-disks")
        return franz(node, "disks", "franz-disks")

    lines = pair.compare(script)
    assert sum(line.startswith("directory <d") for line in lines) == 3
    assert sum("lag 0 future false" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("script_name", "expected"),
    [
        ("topics", "delete franz-topics done"),
        ("configs", "append to a number done"),
        ("broker", "everywhere done"),
        ("quotas", "quotas 1"),
    ],
)
def test_administration(pair: Pair, franz: Franz, script_name: str, expected: str) -> None:
    topic = f"franz-{script_name}"

    def script(node: Node) -> Answer:
        if script_name == "configs":
            create(node, topic)
        return franz(node, script_name, topic)

    assert expected in pair.compare(script)


def test_a_cluster_of_one(pair: Pair, franz: Franz) -> None:
    def script(node: Node) -> Answer:
        fill(franz, node, "franz-cluster")
        return franz(node, "cluster", "franz-cluster")

    assert "producers done" in pair.compare(script)


def test_limits(pair: Pair, franz: Franz) -> None:
    """Small batches and fetches lose nothing; an unknown topic; a record that is too large."""
    lines = pair.compare(lambda node: franz(node, "limits", "franz-limits"))
    flows = [line.rpartition(" ") for line in lines if " 1501 " in line]
    assert len(flows) == 4
    assert len({checksum for _, _, checksum in flows}) == 1
    assert lines[-1].startswith("too large: MESSAGE_TOO_LARGE")


def test_topic_ids(pair: Pair, franz: Franz) -> None:
    lines = pair.compare(lambda node: franz(node, "ids", "franz-ids"))
    assert any(line.startswith("  produce version 13 done") for line in lines)
    assert lines.count("old id") == 1


def test_a_topic_that_is_made_again(pair: Pair, franz: Franz) -> None:
    lines = pair.compare(lambda node: franz(node, "recreate", "franz-again"))
    assert lines[-2:] == ["new topic", "  0 0 new 0"]


@pytest.mark.parametrize(
    ("script_name", "arguments", "expected"),
    [
        ("consume", [], "codec 3 time 0 epochs 0 0 idempotent true transactional false"),
        ("seek", [str(FIRST_TIMESTAMP_MS)], "out of range [0 1 2 3"),
        ("times", [str(FIRST_TIMESTAMP_MS)], " 0 50 -1 epoch 0 done"),
        ("delete", [], "starts 20 50"),
        ("disks", [], "lag 0 future false"),
        ("topics", [], "fewer franz-"),
        ("configs", [], "INVALID_REQUEST: Error due to duplicate config keys"),
        ("group", ["members"], "together [0 1 2 3] changes 6 2"),
    ],
)
@pytest.mark.parametrize("release", OLDER_RELEASES)
def test_older_clients(
    pair: Pair, franz: Franz, release: str, script_name: str, arguments: list[str], expected: str
) -> None:
    topic = f"franz-{release}-{script_name}"
    words = [f"{release}-{word}" if word == "members" else word for word in arguments]

    def script(node: Node) -> Answer:
        sent: list[str] = []
        if script_name == "group":
            create(node, topic, 4)
        elif script_name != "topics":
            create(node, topic, 2)
            first = str(FIRST_TIMESTAMP_MS)
            sent = franz(node, "produce", topic, "lz4", "all", "idempotent", first, release=release)
        return [sent, franz(node, script_name, topic, *words, release=release)]

    _, lines = pair.compare(script)
    assert any(expected in line for line in lines)


def test_versions(pair: Pair, franz: Franz) -> None:
    """The version ranges are Kafka's for every API that is served."""

    def script(node: Node) -> Answer:
        lines = franz(node, "versions", "-")
        return [line for line in lines if not set(line.split()) & NOT_SERVED]

    lines = pair.compare(script)
    assert "api 0 Produce 0 13" in lines
