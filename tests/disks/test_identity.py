"""meta.properties and what a node accepts of its directories at start."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle.common.errors import ConfigError
from spindle.common.filesystem import OsFileSystem
from spindle.common.uuids import Uuid, parse_uuid, uuid_text
from spindle.disks.identity import (
    DirectoryIdentities,
    identify_directories,
    load_ensemble,
    new_directory_id,
)
from spindle.log.formats.meta_properties import (
    MetaProperties,
    encode_meta_properties,
    parse_meta_properties,
)

CLUSTER = "WCA4yTGoQFmvJAT7m4dqOw"
FIRST = parse_uuid("7q5SsfNkDbZpdRWZoeDmMA")
SECOND = parse_uuid("0r-pcf08bXrqE2vePuWSeQ")
FRESH = parse_uuid("V5dyjT6VWUp-R724WOr3tw")
NOW_MS = 1_795_268_847_000


def file_text(**changes: str | None) -> str:
    texts: dict[str, str | None] = {
        "node.id": "1",
        "directory.id": uuid_text(FIRST),
        "version": "1",
        "cluster.id": CLUSTER,
    }
    texts |= {name.replace("_", "."): value for name, value in changes.items()}
    return "".join(f"{key}={value}\n" for key, value in texts.items() if value is not None)


class Disks:
    """Two directories of node 1, as `d1` and `d2` of a folder."""

    def __init__(self, folder: Path) -> None:
        self.paths = [str(folder / "d1"), str(folder / "d2")]
        for path, directory_id in zip(self.paths, (FIRST, SECOND), strict=True):
            Path(path).mkdir()
            self.write(path, directory_id=uuid_text(directory_id))

    def write(self, path: str, **changes: str | None) -> None:
        Path(path, "meta.properties").write_text(file_text(**changes))

    def identify(self, metadata_log_dir: str | None = None, **parts: object) -> DirectoryIdentities:
        file_system = parts.get("file_system", OsFileSystem())
        assert isinstance(file_system, OsFileSystem)
        return identify_directories(
            file_system,
            self.paths,
            metadata_log_dir or self.paths[0],
            1,
            lambda: FRESH,
            NOW_MS,
        )


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def test_a_file_of_kafka_is_read() -> None:
    text = f"#\n#Sat Nov 21 13:47:27 UTC 2026\n{file_text()}"
    assert parse_meta_properties(text.encode(), "f") == MetaProperties(1, CLUSTER, 1, FIRST)


def test_the_file_is_written_as_kafka_writes_it() -> None:
    properties = MetaProperties(1, CLUSTER, 1, FIRST)
    written = encode_meta_properties(properties, NOW_MS)
    assert written.decode() == (
        "#\n#Sat Nov 21 13:47:27 UTC 2026\nnode.id=1\n"
        "directory.id=7q5SsfNkDbZpdRWZoeDmMA\nversion=1\ncluster.id=WCA4yTGoQFmvJAT7m4dqOw\n"
    )
    assert len(written) == 122
    assert parse_meta_properties(written, "f") == properties


def test_a_zookeeper_era_file() -> None:
    meta_properties = parse_meta_properties(b"broker.id=3\n", "f")
    assert meta_properties == MetaProperties(0, None, 3, None)
    assert str(meta_properties) == "{broker.id=3, version=0}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "2"}, "f: version=2 is not known; known are 0 and 1"),
        ({"version": "x"}, "f: version=x is not a number"),
        ({"cluster.id": None}, "f: cluster.id is missing, which version 1 must have"),
        ({"node.id": None}, "f: node.id is missing, which version 1 must have"),
        ({"node.id": "one"}, "f: node.id=one is not a number"),
        ({"directory.id": "x"}, "f: directory.id: 'x' is not an id"),
    ],
)
def test_files_that_cannot_be_used(changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_meta_properties(file_text(**changes).encode(), "f")
    assert str(caught.value).startswith(message)


def test_consistent_directories_have_one_identity(disks: Disks) -> None:
    assert disks.identify() == DirectoryIdentities(
        CLUSTER, {disks.paths[0]: FIRST, disks.paths[1]: SECOND}, {}
    )


def test_a_missing_directory_id_is_made_and_written(disks: Disks) -> None:
    disks.write(disks.paths[1], **{"directory.id": None})
    assert disks.identify().directory_ids[disks.paths[1]] == FRESH
    text = Path(disks.paths[1], "meta.properties").read_text()
    assert text.endswith(
        f"node.id=1\ndirectory.id={uuid_text(FRESH)}\nversion=1\ncluster.id={CLUSTER}\n"
    )
    assert disks.identify().directory_ids[disks.paths[1]] == FRESH


def test_keys_that_are_not_known_survive(disks: Disks) -> None:
    disks.write(disks.paths[1], **{"directory.id": None, "own": "x"})
    disks.identify()
    assert "own=x\n" in Path(disks.paths[1], "meta.properties").read_text()


def test_nothing_is_formatted(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    with pytest.raises(ConfigError) as caught:
        identify_directories(OsFileSystem(), [path], path, 1, lambda: FRESH, NOW_MS)
    assert str(caught.value) == (
        f"No readable meta.properties files found: {path} is not formatted. If the node has run "
        "before, mount its disks or correct log.dirs. Format the directories of a new node with "
        "`spindle storage format -t CLUSTER_ID -c FILE`; `spindle storage random-uuid` prints an "
        "id for a new cluster"
    )


def test_one_directory_is_not_formatted(disks: Disks) -> None:
    Path(disks.paths[1], "meta.properties").unlink()
    with pytest.raises(ConfigError) as caught:
        disks.identify()
    assert str(caught.value).startswith(f"No `meta.properties` found in {disks.paths[1]}: ")
    advice = f"`spindle storage format -t {CLUSTER} --ignore-formatted -c FILE`"
    assert advice in str(caught.value)


def test_formatting_is_not_advised_for_a_directory_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "d"
    (path / "meta.properties").mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        identify_directories(OsFileSystem(), [str(path)], str(path), 1, lambda: FRESH, NOW_MS)
    assert str(caught.value).endswith("meta.properties: Is a directory")


def test_a_directory_of_another_cluster_stops_the_start(disks: Disks) -> None:
    disks.write(disks.paths[1], **{"cluster.id": "other", "directory.id": uuid_text(SECOND)})
    with pytest.raises(ConfigError) as caught:
        disks.identify()
    assert str(caught.value) == (
        f"Invalid cluster.id in: {disks.paths[1]}/meta.properties. Expected {CLUSTER}, but read "
        "other"
    )


def test_a_directory_of_another_node_stops_the_start(disks: Disks) -> None:
    disks.write(disks.paths[1], **{"node.id": "7", "directory.id": uuid_text(SECOND)})
    with pytest.raises(ConfigError) as caught:
        disks.identify()
    assert str(caught.value).startswith(
        f"Stored node id 7 doesn't match previous node id 1 in {disks.paths[1]}/meta.properties."
    )


def test_one_id_for_two_directories(disks: Disks) -> None:
    disks.write(disks.paths[1])
    with pytest.raises(ConfigError) as caught:
        disks.identify()
    text = str(caught.value)
    assert uuid_text(FIRST) in text
    assert all(f"{path}/meta.properties" in text for path in disks.paths)


@pytest.mark.parametrize("reserved", [bytes(16), bytes(15) + b"\x02", bytes(8) + b"\xff" * 8])
def test_a_reserved_directory_id_is_refused(disks: Disks, reserved: Uuid) -> None:
    disks.write(disks.paths[1], **{"directory.id": uuid_text(reserved)})
    with pytest.raises(ConfigError, match="is reserved; remove the line"):
        disks.identify()


def test_a_zookeeper_era_directory(disks: Disks) -> None:
    Path(disks.paths[1], "meta.properties").write_text("version=0\nbroker.id=1\n")
    with pytest.raises(ConfigError, match=r"d2/meta\.properties: cluster\.id is missing"):
        disks.identify()


@pytest.mark.parametrize("text", ["", "version=0\nbroker.id=1\n"])
def test_a_file_without_a_cluster_id_is_not_changed(disks: Disks, text: str) -> None:
    path = Path(disks.paths[1], "meta.properties")
    path.write_text(text)
    with pytest.raises(ConfigError, match="is missing"):
        disks.identify()
    assert path.read_text() == text


def test_the_metadata_log_in_another_directory(disks: Disks) -> None:
    Path(disks.paths[1], "__cluster_metadata-0").mkdir()
    with pytest.raises(ConfigError) as caught:
        disks.identify()
    assert f"`{disks.paths[1]}/__cluster_metadata-0`" in str(caught.value)
    assert f"set metadata.log.dir={disks.paths[1]}" in str(caught.value)
    assert disks.identify(metadata_log_dir=disks.paths[1]).cluster_id == CLUSTER


def test_a_separate_metadata_directory_has_an_id_too(disks: Disks, tmp_path: Path) -> None:
    metadata_dir = tmp_path / "m"
    metadata_dir.mkdir()
    disks.write(str(metadata_dir), **{"directory.id": uuid_text(FRESH)})
    assert disks.identify(str(metadata_dir)).directory_ids[str(metadata_dir)] == FRESH


class BrokenDisk(OsFileSystem):
    """Every read below `path` fails."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read_bytes(self, path: str) -> bytes:
        if path.startswith(self.path):
            raise OSError(errno.EIO, "Input/output error")
        return super().read_bytes(path)


def test_a_directory_that_cannot_be_read_is_offline(disks: Disks) -> None:
    identities = disks.identify(file_system=BrokenDisk(disks.paths[1]))
    assert identities.directory_ids == {disks.paths[0]: FIRST}
    assert identities.offline == {
        disks.paths[1]: f"{disks.paths[1]}/meta.properties: Input/output error"
    }


def test_a_file_that_cannot_be_understood_takes_its_directory_offline(disks: Disks) -> None:
    disks.write(disks.paths[1], version="x")
    assert list(disks.identify().offline) == [disks.paths[1]]


def test_the_metadata_directory_cannot_be_read(disks: Disks) -> None:
    with pytest.raises(ConfigError, match="the node cannot start without it"):
        disks.identify(file_system=BrokenDisk(disks.paths[0]))


def test_a_path_below_a_file_is_a_failure_and_not_unformatted(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    ensemble = load_ensemble(OsFileSystem(), [str(tmp_path / "plain" / "d"), str(tmp_path / "no")])
    assert list(ensemble.failed) == [str(tmp_path / "plain" / "d")]
    assert ensemble.unformatted == (str(tmp_path / "no"),)


def test_new_ids_are_free_not_reserved_and_begin_with_no_dash() -> None:
    dash = parse_uuid("-AAAAAAAAAAAAAAAAAAAAA")
    candidates: Iterator[Uuid] = iter([bytes(16), dash, FIRST, FRESH])
    assert new_directory_id(lambda: next(candidates), [FIRST]) == FRESH
