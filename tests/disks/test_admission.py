"""Which directories a running broker may use, and what a crash leaves of one that it formats."""

from dataclasses import replace

import pytest

from spindle.common.errors import ConfigError
from spindle.common.uuids import Uuid
from spindle.disks.admission import (
    Owner,
    check_apart,
    check_still_mounted,
    examine_directory,
    format_directory,
)
from spindle.log.formats.meta_properties import MetaProperties, write_meta_properties
from spindle.testing.filesystem import MemoryFileSystem

A, B = b"a" * 16, b"b" * 16
OWNER = Owner("cluster", 1, {"/disks/a": A})
NOW_MS = 1_700_000_000_000


class PowerLost(Exception):
    """The machine stops in the middle of an operation."""


class Disks(MemoryFileSystem):
    """Loses power after `operations_left` operations."""

    def __init__(self) -> None:
        super().__init__()
        self.operations_left = -1
        self.make_directories("/disks/a")
        self.sync_directory("/")
        self.sync_directory("/disks")

    def check(self, operation: str, path: str) -> None:
        if self.operations_left == 0:
            raise PowerLost
        self.operations_left -= 1
        super().check(operation, path)


def admit(files: MemoryFileSystem, path: str) -> Uuid:
    properties = examine_directory(files, path, OWNER, may_make=True)
    return format_directory(files, path, properties, OWNER, lambda: B, NOW_MS)


def formatted(files: MemoryFileSystem, path: str, properties: MetaProperties) -> None:
    files.make_directories(path)
    write_meta_properties(files, path, properties, NOW_MS)


def test_an_absent_directory_is_made_and_an_empty_one_is_formatted() -> None:
    files = MemoryFileSystem()
    files.make_directories("/disks/empty/lost+found")
    assert admit(files, "/disks/new") == B
    assert admit(files, "/disks/empty") == B
    assert b"directory.id=YmJiYmJiYmJiYmJiYmJiYg" in files.read_bytes("/disks/new/meta.properties")


def test_an_absent_directory_is_made_only_when_it_is_wanted() -> None:
    files = MemoryFileSystem()
    files.make_directories("/disks")
    with pytest.raises(ConfigError, match="there is no directory /disks/gone: mount its disk"):
        examine_directory(files, "/disks/gone", OWNER, may_make=False)
    assert files.list_directory("/disks") == []


def test_a_directory_of_this_broker_keeps_its_id() -> None:
    files = MemoryFileSystem()
    formatted(files, "/disks/old", MetaProperties(1, "cluster", 1, b"c" * 16))
    assert admit(files, "/disks/old") == b"c" * 16
    formatted(files, "/disks/ancient", MetaProperties(1, "cluster", 1))
    assert admit(files, "/disks/ancient") == B


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (MetaProperties(1, "other", 1, B), r"Invalid cluster\.id in: /disks/x/meta\.properties"),
        (MetaProperties(1, "cluster", 2, B), "Stored node id 2"),
        (MetaProperties(1, "cluster", 1, A), "is both in /disks/a/meta.properties and"),
    ],
)
def test_a_directory_of_others_is_refused(properties: MetaProperties, reason: str) -> None:
    files = MemoryFileSystem()
    formatted(files, "/disks/x", properties)
    before = files.read_bytes("/disks/x/meta.properties")
    with pytest.raises(ConfigError, match=reason):
        admit(files, "/disks/x")
    assert files.read_bytes("/disks/x/meta.properties") == before


@pytest.mark.parametrize("text", [b"", b"version=0\nbroker.id=1\n"], ids=["empty", "old"])
def test_a_directory_that_names_no_owner_is_refused_as_the_next_start_would_refuse_it(
    text: bytes,
) -> None:
    files = MemoryFileSystem()
    files.make_directories("/disks/x/t-0")
    files.write_atomically("/disks/x/meta.properties", text)
    with pytest.raises(ConfigError, match=r"/disks/x/meta\.properties: .*\.id is missing"):
        admit(files, "/disks/x")
    assert files.read_bytes("/disks/x/meta.properties") == text


def test_the_disk_of_another_failed_directory_is_called_mounted_at_the_wrong_path() -> None:
    files = MemoryFileSystem()
    formatted(files, "/disks/x", MetaProperties(1, "cluster", 1, A))
    owner = replace(OWNER, offline=["/disks/a"])
    with pytest.raises(ConfigError, match=r"of /disks/a, which is offline: mount that disk at"):
        examine_directory(files, "/disks/x", owner, may_make=False)


def test_a_metadata_log_and_other_content_are_refused() -> None:
    files = MemoryFileSystem()
    formatted(files, "/disks/m", MetaProperties(1, "cluster", 1, B))
    files.make_directories("/disks/m/__cluster_metadata-0")
    with pytest.raises(ConfigError, match="holds a metadata log"):
        admit(files, "/disks/m")
    for name in "abcde":
        files.make_directories(f"/disks/full/{name}")
    with pytest.raises(ConfigError, match="it contains a, b, c and 2 more; name an empty"):
        admit(files, "/disks/full")


class Mounts(MemoryFileSystem):
    """A file system that is mounted at one place."""

    def __init__(self, mount_point: str) -> None:
        super().__init__()
        self._mount_point = mount_point

    def mount_point(self, path: str) -> str:
        return self._mount_point


@pytest.mark.parametrize("present", ["/", "/disks"])
def test_an_empty_mount_point_without_its_disk_is_refused(present: str) -> None:
    for former in ("/disks/a", "/disks/a/kafka"):
        with pytest.raises(ConfigError, match=f"no disk is mounted at {former}, as there was"):
            check_still_mounted(Mounts(present), "/disks/a/kafka", former)


@pytest.mark.parametrize(
    ("former", "present"),
    [("/", "/"), ("/", "/disks/a"), ("/disks/a", "/disks/a"), ("/dis", "/disks/a"), ("", "/")],
)
def test_a_folder_and_a_new_disk_are_no_missing_disk(former: str, present: str) -> None:
    check_still_mounted(Mounts(present), "/disks/a", former)


def test_a_directory_inside_or_above_another_one_is_refused() -> None:
    others = {"/disks/a": "/alias"}
    check_apart("/disks/ab", "/disks/ab", others)
    with pytest.raises(ConfigError, match="/link is the same directory as /alias, which the"):
        check_apart("/link", "/disks/a", others)
    for path, reason in (
        ("/disks/a", "is the same directory as /alias"),
        ("/disks/a/b", "is inside of /alias"),
        ("/disks", "contains /alias"),
        ("/", "contains /alias"),
    ):
        with pytest.raises(ConfigError, match=reason):
            check_apart(path, path, others)


def test_a_power_failure_at_any_moment_leaves_a_directory_that_is_finished_later() -> None:
    operations = 0
    while True:
        files = Disks()
        files.operations_left = operations
        try:
            admit(files, "/disks/new")
            break
        except PowerLost:
            files.operations_left = -1
            files.crash()
        assert admit(files, "/disks/new") == B
        operations += 1
    assert operations > 3
    files.operations_left = -1
    files.crash()
    assert b"cluster.id=cluster" in files.read_bytes("/disks/new/meta.properties")
