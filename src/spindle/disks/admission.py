"""Whether a running broker may use a directory that it did not have at its start, or that failed.

These functions run on the I/O thread of the directory in question, because its disk may hang. They
read first and write last, so that a directory which is refused is left as it was. A crash leaves a
directory that the next attempt finishes: `meta.properties` is written as a whole.
"""

import posixpath
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spindle.common.errors import ConfigError
from spindle.common.ids import METADATA_PARTITION
from spindle.common.ports import FileSystem
from spindle.common.text import join_first
from spindle.common.uuids import Uuid, UuidSource
from spindle.disks.identity import (
    DirectoryEnsemble,
    check_ensemble,
    check_owner_is_named,
    new_directory_id,
)
from spindle.log.formats.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    meta_properties_path,
    parse_meta_properties,
    write_meta_properties,
)
from spindle.log.formats.names import LOST_AND_FOUND, is_metadata_directory

_HARMLESS: Final = (LOST_AND_FOUND, ".lock", f"{META_PROPERTIES}.tmp")
"""An empty directory may contain these: the rest of a mount, of a lock, of an attempt to format."""
_SHOWN_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """The broker that wants to use a directory.

    Attributes:
        directory_ids: of its other directories, by path.
        offline: the paths of those among them that have failed.
    """

    cluster_id: str
    node_id: int
    directory_ids: Mapping[str, Uuid]
    offline: Collection[str] = ()


def plain_path(path: str) -> str:
    """Return the path as `log.dirs` can name it, without double and trailing slashes.

    Raises:
        ConfigError: it is not absolute, or has a character that no entry of `log.dirs` can have.
    """
    if "," in path:
        raise ConfigError(f"{path!r} has a comma, which separates the paths of log.dirs")
    if not path.startswith("/"):
        raise ConfigError(f"{path!r} is not an absolute path")
    if path != path.strip() or any(unicodedata.category(character) == "Cc" for character in path):
        raise ConfigError(f"{path!r} begins or ends with a space, or has a control character")
    # `normpath` keeps two slashes at the beginning.
    return posixpath.normpath(f"/{path.lstrip('/')}")


def check_apart(path: str, place: str, others: Mapping[str, str]) -> None:
    """Refuse a directory that is inside or above another one.

    Args:
        path: the path for the error text.
        place: the resolved path.
        others: the other directories: by resolved path, the path as it was configured.

    Raises:
        ConfigError: names the other directory.
    """
    for resolved, other in others.items():
        if place == resolved:
            raise ConfigError(f"{path} is the same directory as {other}, which the broker uses")
        inner, outer = f"{place.rstrip('/')}/", f"{resolved.rstrip('/')}/"
        if inner.startswith(outer):
            raise ConfigError(f"{path} is inside of {other}, which is a log directory")
        if outer.startswith(inner):
            raise ConfigError(f"{path} contains {other}, which is a log directory")


def examine_directory(
    file_system: FileSystem, path: str, owner: Owner, *, may_make: bool
) -> MetaProperties | None:
    """Return the identity of a directory that the broker may use; None if it is to be formatted.

    Args:
        may_make: a directory that does not exist is made; its parent must be there. False for a
            directory that has failed: its disk may not be mounted, and its replicas must not be
            copied to the file system of the mount point.

    Raises:
        ConfigError: it belongs to others, or holds what does not belong there.
        OSError: the disk refuses.
    """
    if not file_system.exists(path):
        if not may_make:
            raise ConfigError(
                f"there is no directory {path}: mount its disk, or make an empty directory there"
            )
        parent = posixpath.dirname(path)
        if not file_system.is_directory(parent):
            raise ConfigError(f"{path} cannot be made: there is no directory {parent}")
        file_system.make_directories(path)
        file_system.sync_directory(parent)
        return None
    if not file_system.is_directory(path):
        raise ConfigError(f"{path} is not a directory")
    names = file_system.list_directory(path)
    if META_PROPERTIES not in names:
        _check_empty(path, names)
        return None
    where = meta_properties_path(path)
    properties = parse_meta_properties(file_system.read_bytes(where), where)
    _check_mounted_in_place(path, properties, owner)
    known = {other: MetaProperties(directory_id=i) for other, i in owner.directory_ids.items()}
    check_ensemble(
        DirectoryEnsemble({**known, path: properties}, (), {}), owner.node_id, owner.cluster_id
    )
    check_owner_is_named(path, properties)
    if any(is_metadata_directory(name) for name in names):
        raise ConfigError(
            f"{path} holds a metadata log ({METADATA_PARTITION}), which belongs in the metadata "
            "log directory alone"
        )
    return properties


def check_still_mounted(file_system: FileSystem, path: str, former_mount_point: str) -> None:
    """Refuse an empty directory if the disk that was there before is not mounted any more.

    Replicas would be created on the disk above, which has no room for them. A directory that was
    an ordinary folder of that disk before passes, and so does a new disk at the mount point.

    Args:
        former_mount_point: where the disk was mounted that the directory was on; empty if that is
            not known.

    Raises:
        ConfigError: names the mount point.
    """
    present = file_system.mount_point(path)
    if former_mount_point != present and former_mount_point.startswith(f"{present.rstrip('/')}/"):
        raise ConfigError(
            f"{path} is empty, and no disk is mounted at {former_mount_point}, as there was: "
            "mount it, or a new one. To use the folder itself, which is on the disk of "
            f"{present}, format it first with `spindle storage format --ignore-formatted`"
        )


def _check_mounted_in_place(path: str, properties: MetaProperties, owner: Owner) -> None:
    """Refuse the disk of another directory that has failed; what is there now is not read."""
    for other in owner.offline:
        if properties.directory_id == owner.directory_ids.get(other, b""):
            raise ConfigError(
                f"{path} has the directory.id of {other}, which is offline: mount that disk at "
                f"{other}, and the disk of {path} here"
            )


def _check_empty(path: str, names: list[str]) -> None:
    strange = [name for name in names if name not in _HARMLESS]
    if strange:
        raise ConfigError(
            f"{path} has no {META_PROPERTIES} and is not empty: it contains "
            f"{join_first(strange, _SHOWN_NAMES)}; name an empty directory, or a log directory of "
            "this broker"
        )


def format_directory(
    file_system: FileSystem,
    path: str,
    properties: MetaProperties | None,
    owner: Owner,
    new_uuid: UuidSource,
    now_ms: int,
) -> Uuid:
    """Write what `meta.properties` lacks, and return the directory's id.

    Args:
        properties: the result of `examine_directory`.
    """
    if properties is not None and properties.directory_id is not None:
        return properties.directory_id
    directory_id = new_directory_id(new_uuid, owner.directory_ids.values())
    if properties is None:
        properties = MetaProperties(cluster_id=owner.cluster_id, node_id=owner.node_id)
    completed = replace(properties, directory_id=directory_id)
    write_meta_properties(file_system, path, completed, now_ms)
    return directory_id
