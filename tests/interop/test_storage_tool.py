"""kafka-storage on a node whose log directories change, and whether the node starts then.

Kafka's tool works on Kafka's node and `spindle storage` on Spindle's; the answers are equal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from peers.compare import Answer, difference, plain_text
from peers.java_tools import JavaTools, ToolResult
from peers.node import KafkaNode, Node, NodeFailed, random_uuid
from peers.paths import SPINDLE

_LOGGED = re.compile(r"\tat |Bootstrap metadata:|ERROR |java\.nio\.file\.")
_NAMES = (
    (r"(directory\.id=)[A-Za-z0-9_-]{22}", r"\1<id>"),
    # Kafka names the first one of a hash table.
    (r"^(Log directory )<d\d>( is already formatted)", r"\1<one>\2"),
    # Two refusals are said in our own words, with a remedy.
    (r".*(Duplicate directory ID| is both in <d\d>/meta\.properties and in ).*", "duplicate id"),
    (r".*(Invalid reserved directory ID|directory\.id=<id> is reserved).*", "reserved id"),
)
OTHER_CLUSTER = "AAECAwQFBgcICQoLDA0ODw"
Change = Callable[[Node], None]


def set_property(node: Node, number: int, key: str, value: str | None) -> None:
    """Change a line of a directory's `meta.properties`; None removes it."""
    path = node.log_dirs[number] / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}=")]
    path.write_text("\n".join([*lines, *([f"{key}={value}"] if value is not None else [])]) + "\n")


def property_of(node: Node, number: int, key: str) -> str:
    lines = (node.log_dirs[number] / "meta.properties").read_text().splitlines()
    (value,) = [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]
    return value


def nothing(_: Node) -> None:
    return


def add_a_folder(node: Node) -> None:
    node.log_dirs.append(node.folder / "d4")


def take_one_away(node: Node) -> None:
    del node.log_dirs[2]


def empty_one(node: Node) -> None:
    shutil.rmtree(node.log_dirs[1])
    node.log_dirs[1].mkdir()


def empty_the_metadata(node: Node) -> None:
    shutil.rmtree(node.log_dirs[0])
    node.log_dirs[0].mkdir()


def swap_two(node: Node) -> None:
    node.log_dirs[1], node.log_dirs[2] = node.log_dirs[2], node.log_dirs[1]


def take_one_of_another_cluster(node: Node) -> None:
    set_property(node, 1, "cluster.id", OTHER_CLUSTER)


def take_one_of_another_node(node: Node) -> None:
    set_property(node, 1, "node.id", "7")


def copy_an_identity(node: Node) -> None:
    set_property(node, 2, "directory.id", property_of(node, 1, "directory.id"))


def remove_a_directory_id(node: Node) -> None:
    set_property(node, 2, "directory.id", None)


def reserve_a_directory_id(node: Node) -> None:
    set_property(node, 2, "directory.id", "AAAAAAAAAAAAAAAAAAAAAg")


def truncate_the_identity(node: Node) -> None:
    (node.log_dirs[1] / "meta.properties").write_text("")


def put_a_file_there(node: Node) -> None:
    shutil.rmtree(node.log_dirs[1])
    node.log_dirs[1].write_text("not a directory")


CHANGES: list[Change] = [
    nothing, add_a_folder, take_one_away, empty_one, empty_the_metadata, swap_two,
    take_one_of_another_cluster, take_one_of_another_node, copy_an_identity,
    remove_a_directory_id, reserve_a_directory_id, truncate_the_identity, put_a_file_there,
]  # fmt: skip


class Storage:
    """The storage tool of a node's own program."""

    def __init__(self, node: Node, tools: JavaTools) -> None:
        self._node = node
        self._tools = tools

    def __call__(self, command: str, *words: str) -> Answer:
        """Return the answer of `info`, or of `format` with the cluster's id."""
        options = ["-c", str(self._node.properties_file)]
        if command == "format" and "-t" not in words:
            options += ["-t", self._node.cluster_id]
        if isinstance(self._node, KafkaNode):
            result = self._tools.run("storage", command, *options, *words)
        else:
            line = [str(SPINDLE), "storage", command, *options, *words]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            result = ToolResult(done.returncode, done.stdout, done.stderr)
        return self._plain(result)

    def _plain(self, result: ToolResult) -> Answer:
        lines = []
        for line in (result.stdout + result.stderr).splitlines():
            if not line.strip() or _LOGGED.match(line):
                continue
            text = plain_text(line.removeprefix("java.lang.RuntimeException: "), self._node)
            for pattern, name in _NAMES:
                text = re.sub(pattern, name, text)
            lines.append(text)
        # Kafka formats in the order of a hash table.
        return result.exit_code, sorted(lines)


def starts(node: Node) -> bool:
    """Return whether the node gets ready; stop it again."""
    try:
        node.start()
    except NodeFailed:
        return False
    node.kill()
    return True


def identities(node: Node) -> list[dict[str, str]]:
    """Return what `meta.properties` of each directory says, equal ids by equal names."""
    names: dict[str, str] = {}
    identities = []
    for path in node.log_dirs:
        file = path / "meta.properties"
        lines = file.read_text().splitlines() if path.is_dir() and file.exists() else []
        row = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
        for key in ("directory.id", "cluster.id"):
            if key in row:
                row[key] = names.setdefault(row[key], f"<{key} {len(names)}>")
        identities.append(row)
    return identities


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_node_whose_directories_change(
    tmp_path: Path, candidate_class: type[Node], java_tools: JavaTools, change: Change
) -> None:
    answers = []
    for node in (
        KafkaNode(tmp_path / "reference", cluster_id=random_uuid()),
        candidate_class(tmp_path / "candidate", cluster_id=random_uuid()),
    ):
        storage = Storage(node, java_tools)
        try:
            answer = [storage("format")]
            change(node)
            node.write_properties()
            has_started = change is not nothing and starts(node)
            answer += [
                has_started,
                storage("info"),
                identities(node),
                storage("format", "-t", OTHER_CLUSTER, "--ignore-formatted"),
                storage("format"),
                storage("format", "--ignore-formatted"),
                storage("info"),
                identities(node),
                has_started or starts(node),
            ]
            answers.append(answer)
        finally:
            node.remove()
    assert answers[0] == answers[1], difference(answers[0], answers[1])
