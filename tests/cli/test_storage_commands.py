"""`spindle storage` against the recorded output and files of Apache Kafka 4.4.0."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from spindle.cli.dialect import Dialect
from spindle.cli.main import run
from spindle.common.errors import ConfigError
from spindle.local.formatting.scram_credentials import parse_scram
from spindle.protocol.messages.metadata_records import UserScramCredentialRecord
from spindle.protocol.metadata_frame import parse_frame
from spindle.protocol.records.batch import CRC_POSITION, read_header
from spindle.protocol.records.record import decode_records

CLUSTER = "WCA4yTGoQFmvJAT7m4dqOw"
OTHER_CLUSTER = "dG0Hk0tQSe6Lg-OyQvcSRw"

LATEST = "metadata.version 4.4-IV2"
BOOTSTRAP_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
BOOTSTRAP = (
    "Bootstrap metadata: BootstrapMetadata(records=["
    "ApiMessageAndVersion(FeatureLevelRecord(name='metadata.version', featureLevel=33) at version 0"
    "), ApiMessageAndVersion(FeatureLevelRecord(name='eligible.leader.replicas.version', "
    "featureLevel=1) at version 0), ApiMessageAndVersion(FeatureLevelRecord(name='group.version', "
    "featureLevel=1) at version 0), ApiMessageAndVersion(FeatureLevelRecord(name='share.version', "
    "featureLevel=2) at version 0), ApiMessageAndVersion(FeatureLevelRecord(name='streams.version',"
    " featureLevel=1) at version 0), ApiMessageAndVersion(FeatureLevelRecord(name="
    "'transaction.version', featureLevel=2) at version 0)], metadataVersionLevel=33, "
    "source=format command)"
)


@dataclass
class Node:
    """A property file with three log directories, the first of which holds the metadata log."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def configure(self, **changes: str | None) -> None:
        texts: dict[str, str | None] = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:19192,CONTROLLER://127.0.0.1:19193",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:19193",
            "log.dirs": ",".join(map(str, self.directories)),
        }
        texts |= changes
        lines = (f"{key}={value}\n" for key, value in texts.items() if value is not None)
        self.file.write_text("".join(lines))

    dialect = Dialect.SPINDLE

    def configure_dynamic(self, **changes: str | None) -> None:
        self.configure(
            **{
                "controller.quorum.voters": None,
                "controller.quorum.bootstrap.servers": "127.0.0.1:19193",
            }
            | changes
        )

    @property
    def file(self) -> Path:
        return self.folder / "n1.properties"

    @property
    def directories(self) -> list[Path]:
        return [self.folder / f"n1d{n}" for n in (1, 2, 3)]

    def storage(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error, with `<n1d2>` for directories."""
        code = run(["storage", *arguments], self.dialect)
        captured = self.capsys.readouterr()
        return code, self.shortened(captured.out), self.shortened(captured.err)

    def format(self, *arguments: str, cluster: str = CLUSTER) -> tuple[int, str, str]:
        return self.storage("format", "-t", cluster, "-c", str(self.file), *arguments)

    def info(self, *arguments: str) -> tuple[int, str, str]:
        return self.storage("info", "-c", str(self.file), *arguments)

    def shortened(self, text: str) -> str:
        for directory in self.directories:
            text = text.replace(str(directory), f"<{directory.name}>")
        return text.replace(str(self.folder), "<work>")

    def reset(self) -> None:
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)

    def meta(self, number: int) -> dict[str, str]:
        lines = (self.directories[number - 1] / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.fixture
def node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Node:
    node = Node(tmp_path, capsys)
    node.configure()
    return node


def formatting(kind: str = "metadata directory", release: str = LATEST) -> str:
    return (
        f"Formatting data directory <n1d2> with {release}.\n"
        f"Formatting data directory <n1d3> with {release}.\n"
        f"Formatting {kind} <n1d1> with {release}.\n"
    )


def test_a_node_with_static_voters_gets_no_voter_set(node: Node) -> None:
    node.dialect = Dialect.KAFKA
    assert node.format() == (0, f"{BOOTSTRAP}\n{formatting()}", "")
    node.reset()
    node.dialect = Dialect.SPINDLE
    assert node.format() == (0, formatting(), "")
    for number in (1, 2, 3):
        directory = node.directories[number - 1]
        names = ["__cluster_metadata-0"] if number == 1 else []
        assert sorted(p.name for p in directory.iterdir()) == [*names, "meta.properties"]
        assert list(node.meta(number)) == ["node.id", "directory.id", "version", "cluster.id"]
        assert node.meta(number)["cluster.id"] == CLUSTER
    assert len({node.meta(number)["directory.id"] for number in (1, 2, 3)}) == 3


def test_a_formatted_directory_is_not_formatted_again(node: Node) -> None:
    node.format()
    assert node.format() == (
        1,
        "",
        "Log directory <n1d2> is already formatted. Use --ignore-formatted to ignore this "
        "directory and format the others.\n",
    )
    assert node.format("--ignore-formatted") == (
        0,
        "All of the log directories are already formatted.\n",
        "",
    )


@pytest.mark.parametrize("flags", [(), ("-g",)])
def test_directories_of_another_cluster_are_refused(node: Node, flags: tuple[str, ...]) -> None:
    node.format()
    assert node.format(*flags, cluster=OTHER_CLUSTER) == (
        1,
        "",
        f"Invalid cluster.id in: <n1d1>/meta.properties. Expected {OTHER_CLUSTER}, but read "
        f"{CLUSTER}\n",
    )


def test_an_emptied_directory_is_formatted_for_the_same_node(node: Node) -> None:
    node.format()
    before = [node.meta(1), node.meta(3)]
    shutil.rmtree(node.directories[1])
    node.directories[1].mkdir()
    code, out, _ = node.info()
    assert code == 1
    assert out.endswith("Found problem:\n  <n1d2> is not formatted.\n\n")
    assert node.format("-g") == (
        0,
        f"Formatting data directory <n1d2> with {LATEST}.\n",
        "",
    )
    assert [node.meta(1), node.meta(3)] == before


def rewrite(directory: Path, old: str, new: str) -> None:
    path = directory / "meta.properties"
    path.write_text(re.sub(old, new, path.read_text(), flags=re.MULTILINE))


def test_directories_of_another_node_are_refused(node: Node) -> None:
    node.format()
    rewrite(node.directories[2], "node.id=1", "node.id=7")
    assert node.format("-g") == (
        1,
        "",
        "Stored node id 7 doesn't match previous node id 1 in <n1d3>/meta.properties. If you moved "
        "your data, make sure your configured node id matches. If you intend to create a new node, "
        "you should remove all data in your data directories.\n",
    )
    assert node.info()[1].endswith(
        "Found problem:\n  Mismatched node IDs between storage directories.\n\n"
    )


def test_info_shows_directories_and_their_properties(node: Node) -> None:
    node.format()
    directory_id = node.meta(1)["directory.id"]
    assert node.info() == (
        0,
        "Found log directories:\n  <n1d1>\n  <n1d2>\n  <n1d3>\n\n"
        f"Found metadata: {{cluster.id={CLUSTER}, directory.id={directory_id}, node.id=1, "
        "version=1}\n\n",
        "",
    )
    code, out, _ = node.info("--json")
    assert (code, json.loads(out)["metadata"]["node.id"]) == (0, "1")


def test_info_reports_directories_that_are_not_formatted(node: Node) -> None:
    node.directories[1].mkdir()
    node.directories[2].write_text("")
    assert node.info() == (
        1,
        "Found log directory:\n  <n1d2>\n\nFound problems:\n  <n1d1> does not exist\n"
        "  <n1d2> is not formatted.\n  <n1d3> is not a directory\n\n",
        "",
    )


def test_info_does_not_mind_one_id_for_two_directories(node: Node) -> None:
    node.format()
    rewrite(node.directories[2], "directory.id=.*", f"directory.id={node.meta(1)['directory.id']}")
    assert node.info()[0] == 0


def test_a_file_without_version_and_cluster_id(node: Node) -> None:
    node.format()
    (node.directories[2] / "meta.properties").write_text("node.id=1\n")
    assert node.info()[1].endswith(
        "Found problem:\n  Mismatched cluster IDs between storage directories.\n\n"
    )
    assert node.format("-g")[:2] == (0, "All of the log directories are already formatted.\n")


def test_directories_of_a_zookeeper_cluster(node: Node) -> None:
    for directory in node.directories:
        directory.mkdir()
        (directory / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    code, out, _ = node.info()
    assert code == 1
    assert "but the directories are formatted for legacy mode." in out


@pytest.mark.parametrize(
    "flags", [("--standalone",), ("-I", "1@127.0.0.1:19193:WwD5mObiStKs1UADyQq9JQ")]
)
def test_static_voters_and_a_dynamic_quorum(node: Node, flags: tuple[str, ...]) -> None:
    code, out, err = node.format(*flags)
    assert (code, out) == (1, "")
    assert err == (
        "You cannot specify controller.quorum.voters and format the node with "
        "--initial-controllers or --standalone. If you want to use dynamic quorum, please remove "
        "controller.quorum.voters and specify controller.quorum.bootstrap.servers instead.\n"
    )


def test_static_voters_without_initial_controllers(node: Node) -> None:
    assert node.format("-N") == (0, formatting(), "")


def test_the_cluster_id_may_be_any_text(node: Node) -> None:
    assert node.format(cluster="not-a-uuid")[0] == 0
    assert node.meta(1)["cluster.id"] == "not-a-uuid"


SUPPORTED = "Supported metadata.version are:"
VERSIONS = (
    "3.3-IV3, 3.4-IV0, 3.5-IV0, 3.5-IV1, 3.5-IV2, 3.6-IV0, 3.6-IV1, 3.6-IV2, 3.7-IV0, 3.7-IV1, "
    "3.7-IV2, 3.7-IV3, 3.7-IV4, 3.8-IV0, 3.9-IV0, 4.0-IV0, 4.0-IV1, 4.0-IV2, 4.0-IV3, 4.1-IV0, "
    "4.1-IV1, 4.2-IV0, 4.2-IV1, 4.3-IV0, 4.4-IV0, 4.4-IV1, 4.4-IV2"
)
QUORUM_FLAGS = "--standalone, --initial-controllers, or --no-initial-controllers"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("-r", "9.9"),
            f"Unknown metadata.version '9.9'. Supported metadata.version are: {VERSIONS}",
        ),
        (
            ("-r", "3.2"),
            f"Unknown metadata.version '3.2'. Supported metadata.version are: {VERSIONS}",
        ),
        (
            ("-f", "nosuch.feature=1"),
            "Unsupported feature: nosuch.feature. Supported features are: "
            "eligible.leader.replicas.version, group.version, kraft.version, share.version, "
            "streams.version, transaction.version",
        ),
        (("-f", "group.version=99"), "No feature:group.version with feature level 99"),
        (
            ("-f", "metadata.version=99"),
            "No MetadataVersion with feature level 99. Valid feature levels are from 7 to 34.",
        ),
        (("-f", "metadata.version=34"), "metadata.version 4.5-IV0 is not yet stable."),
        (
            ("-r", "3.9", "-f", "eligible.leader.replicas.version=1"),
            "eligible.leader.replicas.version could not be set to 1 because it depends on "
            "metadata.version level 23",
        ),
        (
            ("-r", "4.0", "-f", "metadata.version=25"),
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity.",
        ),
        (
            ("-f", "kraft.version=1"),
            "Cannot set kraft.version to 1 unless controller.quorum.voters is empty and one of the "
            f"flags {QUORUM_FLAGS} is used. For dynamic controllers support, try using one of "
            f"{QUORUM_FLAGS} and removing controller.quorum.voters.",
        ),
        (
            ("-f", "group.version"),
            "Can't parse feature=level string group.version: equals sign not found.",
        ),
        (
            ("-f", "group.version=x"),
            "Can't parse feature=level string group.version=x: unable to parse x as a short.",
        ),
    ],
)
def test_flags_that_contradict_the_configuration_are_refused(
    node: Node, flags: tuple[str, ...], message: str
) -> None:
    assert node.format(*flags) == (1, "", f"{message}\n")
    assert not node.directories[0].exists()


@pytest.mark.parametrize(
    ("flags", "release", "levels"),
    [
        (("-r", "3.3-IV3"), "3.3-IV3", [("metadata.version", 7)]),
        (("-r", "3.7"), "3.7-IV4", [("metadata.version", 19)]),
        (("-r", "3.9"), "3.9-IV0", [("metadata.version", 21)]),
        (
            ("-r", "4.0"),
            "4.0-IV3",
            [("metadata.version", 25), ("group.version", 1), ("transaction.version", 2)],
        ),
        (
            ("-r", "4.0", "-f", "share.version=1"),
            "4.0-IV3",
            [
                ("metadata.version", 25),
                ("group.version", 1),
                ("share.version", 1),
                ("transaction.version", 2),
            ],
        ),
        (
            ("-r", "4.0", "-f", "eligible.leader.replicas.version=1"),
            "4.0-IV3",
            [
                ("metadata.version", 25),
                ("eligible.leader.replicas.version", 1),
                ("group.version", 1),
                ("transaction.version", 2),
            ],
        ),
        (
            ("-f", "metadata.version=27", "-f", "group.version=0"),
            "4.1-IV1",
            [
                ("metadata.version", 27),
                ("eligible.leader.replicas.version", 1),
                ("transaction.version", 2),
            ],
        ),
    ],
)
def test_a_release_and_features_set_the_levels(
    node: Node, flags: tuple[str, ...], release: str, levels: list[tuple[str, int]]
) -> None:
    node.dialect = Dialect.KAFKA
    code, out, _ = node.format(*flags)
    assert code == 0
    assert out.endswith(formatting(release=f"metadata.version {release}"))
    shown = re.findall(r"name='([a-z.]+)', featureLevel=(\d+)", out)
    assert [(name, int(level)) for name, level in shown] == levels


def test_kraft_version_0_is_the_default_with_static_voters(node: Node) -> None:
    assert node.format("-f", "kraft.version=0") == (0, formatting(), "")


def test_a_dynamic_quorum_needs_a_flag(node: Node) -> None:
    node.configure_dynamic()
    assert node.format() == (
        1,
        "",
        "Because controller.quorum.voters is not set on this controller, you must specify one of "
        "the following: --standalone, --initial-controllers, or --no-initial-controllers.\n",
    )
    assert node.format("--standalone", "-f", "kraft.version=0") == (
        1,
        "",
        "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags "
        f"{QUORUM_FLAGS} is used. For dynamic controllers support, try removing the --feature flag "
        "for kraft.version.\n",
    )


def test_standalone_writes_a_voter_set_with_this_node_alone(node: Node) -> None:
    node.configure_dynamic()
    assert node.format("-s") == (
        0,
        formatting("dynamic metadata voter directory"),
        "",
    )
    assert (node.directories[0] / BOOTSTRAP_SNAPSHOT).stat().st_size == 494
    assert not (node.directories[1] / "__cluster_metadata-0").exists()


def test_a_dynamic_quorum_at_an_old_metadata_version(node: Node) -> None:
    node.configure_dynamic()
    code, out, _ = node.format("-s", "-r", "3.3")
    assert code == 0
    assert out.endswith(formatting("dynamic metadata voter directory", "metadata.version 3.3-IV3"))


def test_initial_controllers_name_this_node(node: Node) -> None:
    node.configure_dynamic()
    voters = "2@127.0.0.1:19293:fNDNd8N5TOW5aK0-Un2bXQ,1@127.0.0.1:19193:WwD5mObiStKs1UADyQq9JQ"
    code, out, _ = node.format("-I", voters)
    assert (code, out) == (0, formatting("dynamic metadata voter directory"))
    assert node.meta(1)["directory.id"] == "WwD5mObiStKs1UADyQq9JQ"
    assert (node.directories[0] / BOOTSTRAP_SNAPSHOT).stat().st_size == 546


def test_initial_controllers_name_other_nodes(node: Node) -> None:
    node.configure_dynamic()
    code, out, _ = node.format("-I", "2@127.0.0.1:19293:WwD5mObiStKs1UADyQq9JQ")
    assert (code, out) == (0, formatting("dynamic metadata directory"))
    assert node.meta(1)["directory.id"] != "WwD5mObiStKs1UADyQq9JQ"
    assert (node.directories[0] / BOOTSTRAP_SNAPSHOT).stat().st_size == 494


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1@h:1", "No colon following port could be found."),
        ("1@h:1:xyz", "Failed to parse directory ID in dynamic voter string."),
        ("1", "No @ found in dynamic voter string."),
        ("@h:1:WwD5mObiStKs1UADyQq9JQ", "Failed to parse node id in dynamic voter string."),
        ("1@h", "No colon following hostname could be found."),
        ("1@[::1:1:x", "Hostname began with left bracket, but no right bracket was found."),
        ("1@[::1]1:x", "Port section must start with a colon."),
        ("1@h:x:y", "Failed to parse port in dynamic voter string."),
        ("1@h:70000:y", "Invalid port 70000 in dynamic voter string."),
        (",", "No voters given."),
        (
            "1@h:1:WwD5mObiStKs1UADyQq9JQ,1@g:1:fNDNd8N5TOW5aK0-Un2bXQ",
            "Node id 1 was specified more than once.",
        ),
    ],
)
def test_malformed_initial_controllers_are_refused(node: Node, text: str, message: str) -> None:
    node.configure_dynamic()
    code, out, err = node.format("-I", text)
    assert (code, out) == (1, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_an_initial_controller_may_have_an_ipv6_address(node: Node) -> None:
    node.configure_dynamic()
    assert node.format("-I", "1@[::1]:19193:WwD5mObiStKs1UADyQq9JQ")[0] == 0
    assert b"::1" in (node.directories[0] / BOOTSTRAP_SNAPSHOT).read_bytes()


def test_a_controller_without_initial_controllers_writes_no_voter_set(node: Node) -> None:
    node.configure_dynamic()
    assert node.format("-N") == (0, formatting(), "")
    assert (node.directories[0] / BOOTSTRAP_SNAPSHOT).stat().st_size == 427


def test_flags_that_exclude_each_other(node: Node) -> None:
    node.configure_dynamic()
    code, out, err = node.format("--standalone", "--no-initial-controllers")
    assert (code, out) == (2, "")
    assert err.startswith(
        "argument --no-initial-controllers/-N: not allowed with argument --standalone/-s\n"
    )


def test_a_node_that_is_only_a_broker_cannot_be_standalone(node: Node) -> None:
    node.configure_dynamic(
        **{"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:19192"}
    )
    code, out, err = node.format("--standalone")
    assert (code, out, err) == (1, "", "You can only use --standalone on a controller.\n")
    assert node.format() == (0, formatting(), "")
    files = {path.name for path in node.directories[0].rglob("*")}
    assert files == {"meta.properties"}, "the bootstrap snapshot is for controllers"


def test_a_directory_that_cannot_be_made(node: Node) -> None:
    plain = node.folder / "plain"
    plain.write_text("")
    directories = f"{node.directories[0]},{node.directories[1]},{plain / 'd'}"
    node.configure(**{"log.dirs": directories})
    assert node.format() == (
        0,
        "I/O error trying to read log directory <work>/plain/d. Ignoring...\n"
        f"Formatting data directory <n1d2> with {LATEST}.\n"
        f"Formatting metadata directory <n1d1> with {LATEST}.\n",
        "",
    )


def test_no_directory_can_be_used(node: Node) -> None:
    plain = node.folder / "plain"
    plain.write_text("")
    node.configure(**{"log.dirs": f"{plain}/d"})
    code, _, err = node.format()
    assert code == 1
    assert err.startswith("No available log directories to format.")


def test_a_write_that_fails(node: Node) -> None:
    (node.directories[1]).write_text("")
    node.configure(**{"log.dirs": f"{node.directories[0]}"})
    node.directories[0].mkdir()
    (node.directories[0] / "__cluster_metadata-0").write_text("")
    code, _, err = node.format()
    assert code == 1
    assert err.startswith("Error while writing to log directory <n1d1>: <n1d1>/__cluster_met")
    assert "Errno" not in err
    assert not (node.directories[0] / "meta.properties").exists()


# The first 200 bytes of the files that Kafka wrote; CRCs, times and directory ids differ.
KAFKA_BOOTSTRAP = bytes.fromhex(
    "00 00 00 00 00 00 00 00 00 00 00 47 00 00 00 00 02 6c 2c 91 0d 00 20 00 00 00 00 00 00 01 "
    "a2 1d 96 21 14 00 00 01 a2 1d 96 21 14 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 "
    "01 2a 00 00 00 08 00 00 00 03 16 00 00 00 00 01 a2 1d 96 20 f8 00 00 00 00 00 00 00 00 00 "
    "01 00 00 00 f1 00 00 00 00 02 78 ae 6c 7f 00 00 00 00 00 05 00 00 01 a2 1d 96 21 2c 00 00 "
    "01 a2 1d 96 21 2c ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 06 3a 00 00 00 01 2e "
    "01 0c 00 11 6d 65 74 61 64 61 74 61 2e 76 65 72 73 69 6f 6e 00 21 00 00 5a 00 00 02 01 4e "
    "01 0c 00 21 65 6c 69 67 69 62 6c 65 2e 6c 65 61 64 65 72 2e "
)
KAFKA_VOTERS = bytes.fromhex(
    "00 00 00 00 00 00 00 00 00 00 00 9a 00 00 00 00 02 5f 20 39 a5 00 20 00 00 00 02 00 00 01 "
    "a2 1d 96 2c a4 00 00 01 a2 1d 96 2c a4 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 "
    "03 2a 00 00 00 08 00 00 00 03 16 00 00 00 00 01 a2 1d 96 2c 99 00 00 1e 00 00 02 08 00 00 "
    "00 05 0a 00 00 00 01 00 00 82 01 00 00 04 08 00 00 00 06 6e 00 00 02 00 00 00 01 55 23 1b "
    "24 bc a8 4d b4 92 d3 6a 78 c1 06 da 6f 02 0b 43 4f 4e 54 52 4f 4c 4c 45 52 0a 31 32 37 2e "
    "30 2e 30 2e 31 36 54 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 03 00 00 00 f1 00 00 "
    "00 00 02 70 d6 06 5f 00 00 00 00 00 05 00 00 01 a2 1d 96 2c "
)
HEADER_TIME = (77, 8)


def masked(data: bytes, *spans: tuple[int, int]) -> bytes:
    """Return the bytes with zeros for CRCs, times and the given spans, which vary by run."""
    out = bytearray(data)
    position = 0
    for start, size in spans:
        out[start : start + size] = bytes(len(out[start : start + size]))
    while position < len(out):
        length = int.from_bytes(data[position + 8 : position + 12], "big")
        for at, size in ((CRC_POSITION, 4), (27, 16)):
            start = position + at
            out[start : start + size] = bytes(len(out[start : start + size]))
        position += 12 + length
    return bytes(out)


def test_the_bootstrap_snapshot_is_kafkas_byte_for_byte(node: Node) -> None:
    node.format()
    ours = (node.directories[0] / BOOTSTRAP_SNAPSHOT).read_bytes()
    assert len(ours) == 411
    assert masked(ours, HEADER_TIME)[:200] == masked(KAFKA_BOOTSTRAP, HEADER_TIME)


def test_the_first_voters_are_kafkas_byte_for_byte(node: Node) -> None:
    node.configure_dynamic(listeners="PLAINTEXT://127.0.0.1:13907,CONTROLLER://127.0.0.1:13908")
    node.format("-s")
    ours = (node.directories[0] / BOOTSTRAP_SNAPSHOT).read_bytes()
    assert len(ours) == 494
    spans = (HEADER_TIME, (KAFKA_VOTERS.index(bytes.fromhex("55231b24")), 16))
    assert masked(ours, *spans)[:200] == masked(KAFKA_VOTERS, *spans)


SCRAM = (
    'SCRAM-SHA-256=[name=alice,iterations=8192,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2sxb2N6cg==",'
    'saltedpassword="mT0yyUUxnlJaC99HXgRTSYlbuqa4FSGtJCJfTMvjYCE="]'
)


def test_a_scram_credential_becomes_a_first_record(node: Node) -> None:
    node.dialect = Dialect.KAFKA
    code, out, _ = node.format("-S", SCRAM)
    assert code == 0
    assert (
        "ApiMessageAndVersion(UserScramCredentialRecord(name='alice', mechanism=1, "
        "salt=[hidden], storedKey=[hidden], serverKey=[hidden], iterations=8192) at "
        "version 0)], metadataVersionLevel=33" in out
    )
    data = (node.directories[0] / BOOTSTRAP_SNAPSHOT).read_bytes()
    second = 12 + int.from_bytes(data[8:12], "big")
    records = list(decode_records(data, second, read_header(data, second)))
    record, version = parse_frame(records[-1].value or b"")
    assert isinstance(record, UserScramCredentialRecord)
    assert (record.name, version) == ("alice", 0)


def test_scram_needs_its_metadata_version(node: Node) -> None:
    code, _, err = node.format("-S", SCRAM, "-r", "3.4")
    assert code == 1
    assert err == "SCRAM is only supported in metadata.version 3.5-IV2 or later.\n"


def test_a_password_becomes_a_salted_one() -> None:
    salt = "MWx2NHBkbnc0ZndxN25vdGN4bTB5Y2sxb2N6cg=="
    text = f"SCRAM-SHA-512=[name=a,password=secret,salt={salt}]"
    record = parse_scram(text, bytes)
    assert (record.mechanism, record.iterations, len(record.stored_key)) == (2, 4096, 64)
    assert parse_scram("SCRAM-SHA-256=[name=a,password=b]", bytes).salt == bytes(32)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign in SCRAM argument 'SCRAM-SHA-256'"),
        ("SCRAM-SHA-1=[]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        ("SCRAM-SHA-256=x", "Expected configuration string to start with ["),
        ("SCRAM-SHA-256=[x", "Expected configuration string to end with ]"),
        ("SCRAM-SHA-256=[x]", "No equals sign found in SCRAM component: x"),
        ("SCRAM-SHA-256=[password=x]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=x]", "You must supply one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=x,saltedpassword=AA==]", "You must supply 'salt' with"),
        ("SCRAM-SHA-256=[name=x,password=y,salt=?]", "Failed to decode given salt: ?"),
        (
            "SCRAM-SHA-256=[name=x,saltedpassword=secret?,salt=AA==]",
            "Failed to decode given saltedPassword: [hidden]",
        ),
        ("SCRAM-SHA-256=[name=x,password=y,iterations=z]", "Failed to parse iterations count: z"),
        (
            "SCRAM-SHA-256=[name=x,password=y,iterations=1]",
            "The 'iterations' value must be >= 40",
        ),
        (
            "SCRAM-SHA-256=[name=x,password=y,iterations=20000]",
            "The 'iterations' value must be <= 16384",
        ),
        ("SCRAM-SHA-256=[name=x,password=y,b=1,a=2]", "Unknown SCRAM configurations: a, b"),
    ],
)
def test_malformed_scram_credentials_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_scram(text, bytes)
    assert str(caught.value).startswith(message)


def test_version_mapping_shows_the_feature_levels_of_a_release(node: Node) -> None:
    assert node.storage("version-mapping") == (
        0,
        "metadata.version=33 (4.4-IV2)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n"
        "eligible.leader.replicas.version=1\nshare.version=2\nstreams.version=1\n",
        "",
    )
    assert node.storage("version-mapping", "-r", "4.0") == (
        0,
        "metadata.version=25 (4.0)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n"
        "eligible.leader.replicas.version=0\nshare.version=0\nstreams.version=0\n",
        "",
    )
    code, out, _ = node.storage("version-mapping", "-r", "3.7-IV2", "--json")
    assert (code, json.loads(out)["metadata.version"]) == (0, 17)
    assert node.storage("version-mapping", "-r", "3.2")[2].startswith("Unknown metadata.version")


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ("share.version=1", (0, "share.version=1 has no dependencies.\n", "")),
        (
            "eligible.leader.replicas.version=1",
            (
                0,
                "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n",
                "",
            ),
        ),
        ("kraft.version=1", (0, "kraft.version=1 has no dependencies.\n", "")),
        ("metadata.version=30", (0, "metadata.version=30 (4.3-IV0) has no dependencies.\n", "")),
        ("transaction.version=0", (0, "transaction.version=0 has no dependencies.\n", "")),
        ("nosuch=1", (1, "", "Unknown feature: nosuch\n")),
        (
            "group.version=9",
            (1, "", "Feature level 9 is not supported for feature group.version\n"),
        ),
        ("group.version=x", (1, "", "Invalid version format: x for feature group.version\n")),
        ("metadata.version=99", (1, "", "Unknown metadata.version 99\n")),
        (
            "group.version",
            (
                1,
                "",
                "Invalid feature format: group.version. Expected format: 'feature=version' (e.g. "
                "'group.version=1')\n",
            ),
        ),
    ],
)
def test_feature_dependencies_are_shown_for_each_level(
    node: Node, feature: str, expected: tuple[int, str, str]
) -> None:
    assert node.storage("feature-dependencies", "-f", feature) == expected


def test_feature_dependencies_as_json(node: Node) -> None:
    code, out, _ = node.storage(
        "feature-dependencies", "-f", "eligible.leader.replicas.version=1", "--json"
    )
    assert code == 0
    assert json.loads(out) == {"eligible.leader.replicas.version=1": {"metadata.version": 23}}


def test_random_uuid_prints_a_new_id_each_time(node: Node) -> None:
    code, out, _ = node.storage("random-uuid")
    assert code == 0
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", out)
    assert node.storage("random-uuid")[1] != out


def test_a_missing_flag_and_a_missing_file(node: Node) -> None:
    code, _, err = node.storage("format", "-c", str(node.file))
    assert code == 2
    assert "--cluster-id" in err
    code, _, err = node.storage("info", "-c", "/no/such/file")
    assert (code, err) == (1, "cannot read /no/such/file: No such file or directory\n")


def test_a_property_file_that_cannot_be_used(node: Node) -> None:
    node.file.write_text("a=\\u12")
    code, _, err = node.format()
    assert (code, err) == (
        1,
        "<work>/n1.properties, line 1: malformed escape '\\u12': want four hexadecimal digits\n",
    )
    node.configure(**{"node.id": "x"})
    assert node.format()[2] == (
        "Invalid value x for configuration node.id: Not a number of type INT\n"
    )
