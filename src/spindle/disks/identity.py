"""The identities of a node's log directories, and the checks over all of them at a start.

Decides which directories a node may work with at its start: every readable one must be formatted,
for the same cluster and for this node, with an id of its own (KIP-858). A directory that cannot be
read is offline from the start and does not hinder the others, unless it holds the metadata log.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spindle.common.errors import ConfigError, is_out_of_descriptors
from spindle.common.ids import METADATA_PARTITION
from spindle.common.ports import FileSystem
from spindle.common.uuids import Uuid, UuidSource, is_reserved_directory_id, uuid_text
from spindle.log.formats.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    meta_properties_path,
    parse_meta_properties,
    write_meta_properties,
)


@dataclass(frozen=True, slots=True)
class DirectoryEnsemble:
    """The `meta.properties` of a node's directories. Each mapping and tuple is sorted by path.

    Attributes:
        formatted: directories with a `meta.properties` that was understood.
        unformatted: directories without the file (or that do not exist).
        failed: directories that could not be read, with the reason.
    """

    formatted: Mapping[str, MetaProperties]
    unformatted: tuple[str, ...]
    failed: Mapping[str, str]


def load_ensemble(file_system: FileSystem, directories: Sequence[str]) -> DirectoryEnsemble:
    """Read the `meta.properties` of each directory (twice the same directory counts once).

    Raises:
        OSError: the process can open no more files.
    """
    formatted: dict[str, MetaProperties] = {}
    unformatted: list[str] = []
    failed: dict[str, str] = {}
    for directory in sorted(dict.fromkeys(directories)):
        path = meta_properties_path(directory)
        try:
            formatted[directory] = parse_meta_properties(file_system.read_bytes(path), path)
        except FileNotFoundError:
            unformatted.append(directory)
        except OSError as error:
            if is_out_of_descriptors(error):
                raise
            failed[directory] = f"{path}: {error.strerror or error}"
        except ConfigError as error:
            failed[directory] = str(error)
    return DirectoryEnsemble(formatted, tuple(unformatted), failed)


def check_ensemble(
    ensemble: DirectoryEnsemble, node_id: int, cluster_id: str | None = None
) -> None:
    """Refuse directories that do not belong together.

    Args:
        cluster_id: required in every directory; None stands for the first one found.

    Raises:
        ConfigError: a foreign cluster or node id, a reserved directory id, or one used twice.
    """
    expected = cluster_id
    seen: dict[Uuid, str] = {}
    for directory, properties in ensemble.formatted.items():
        path = meta_properties_path(directory)
        if properties.cluster_id is not None:
            expected = properties.cluster_id if expected is None else expected
            if properties.cluster_id != expected:
                raise ConfigError(
                    f"Invalid cluster.id in: {path}. Expected {expected}, but read "
                    f"{properties.cluster_id}"
                )
        if properties.node_id not in (None, node_id):
            raise ConfigError(
                f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in "
                f"{path}. If you moved your data, make sure your configured node id matches. If "
                "you intend to create a new node, you should remove all data in your data "
                "directories."
            )
        if properties.directory_id is not None:
            _check_directory_id(properties.directory_id, directory, seen)


def _check_directory_id(directory_id: Uuid, directory: str, seen: dict[Uuid, str]) -> None:
    path = meta_properties_path(directory)
    if is_reserved_directory_id(directory_id):
        raise ConfigError(
            f"{path}: directory.id={uuid_text(directory_id)} is reserved; remove the line and a "
            "new id is made at the next start"
        )
    other = seen.setdefault(directory_id, directory)
    if other != directory:
        raise ConfigError(
            f"directory.id={uuid_text(directory_id)} is both in {meta_properties_path(other)} and "
            f"in {path}; one directory is a copy of the other: take it out of log.dirs"
        )


@dataclass(frozen=True, slots=True)
class DirectoryIdentities:
    """The identities of the directories of a node that may start.

    Attributes:
        cluster_id: the same in every readable directory.
        directory_ids: by path, of every readable directory (the metadata directory included).
        offline: by path, why a directory cannot be used.
    """

    cluster_id: str
    directory_ids: Mapping[str, Uuid]
    offline: Mapping[str, str]


def identify_directories(
    file_system: FileSystem,
    log_dirs: Sequence[str],
    metadata_log_dir: str,
    node_id: int,
    new_uuid: UuidSource,
    now_ms: int,
) -> DirectoryIdentities:
    """Check the directories of a node that starts; write a `directory.id` where it is missing.

    A directory that cannot be read, or that does not take its new id, is offline.

    Raises:
        ConfigError: the node must not start; names file, key, value and what to do.
        OSError: the process can open no more files.
    """
    ensemble = load_ensemble(file_system, (*log_dirs, metadata_log_dir))
    if not ensemble.formatted:
        raise ConfigError(_nothing_formatted(ensemble))
    check_ensemble(ensemble, node_id)
    _require_metadata_directory(ensemble.failed, metadata_log_dir)
    _check_metadata_log_place(file_system, ensemble, metadata_log_dir)
    if ensemble.unformatted:
        raise ConfigError(
            f"No `{META_PROPERTIES}` found in {ensemble.unformatted[0]}: its disk is not mounted, "
            "or the directory is not formatted. Mount the disk, or, if it is new or empty, run "
            f"`spindle storage format -t {_cluster_id_of(ensemble)} --ignore-formatted -c FILE`; "
            "or take the directory out of log.dirs"
        )
    cluster_id = _cluster_id_of(ensemble)
    ids, refused = _directory_ids(file_system, ensemble, new_uuid, now_ms)
    offline = {**ensemble.failed, **refused}
    _require_metadata_directory(offline, metadata_log_dir)
    return DirectoryIdentities(cluster_id, ids, offline)


def _require_metadata_directory(offline: Mapping[str, str], metadata_log_dir: str) -> None:
    if metadata_log_dir in offline:
        raise ConfigError(
            f"the metadata log directory {metadata_log_dir} cannot be used: "
            f"{offline[metadata_log_dir]}; the node cannot start without it"
        )


def _nothing_formatted(ensemble: DirectoryEnsemble) -> str:
    reasons = [f"{directory} is not formatted" for directory in ensemble.unformatted]
    reasons += ensemble.failed.values()
    text = f"No readable {META_PROPERTIES} files found: {'; '.join(reasons)}"
    if ensemble.failed:
        # A directory that cannot be read may be full of records: do not advise to format it.
        return text
    return (
        f"{text}. If the node has run before, mount its disks or correct log.dirs. Format the "
        "directories of a new node with `spindle storage format -t CLUSTER_ID -c FILE`; "
        "`spindle storage random-uuid` prints an id for a new cluster"
    )


def _check_metadata_log_place(
    file_system: FileSystem, ensemble: DirectoryEnsemble, metadata_log_dir: str
) -> None:
    for directory in ensemble.formatted:
        place = f"{directory.rstrip('/')}/{METADATA_PARTITION}"
        if directory != metadata_log_dir and file_system.exists(place):
            raise ConfigError(
                f"Found unexpected metadata location in data directory `{place}`: the metadata "
                f"log is configured in {metadata_log_dir}; set metadata.log.dir={directory}, or "
                "put that directory first in log.dirs"
            )


def check_owner_is_named(directory: str, properties: MetaProperties) -> None:
    """Refuse a directory that does not say to which node and cluster it belongs.

    Raises:
        ConfigError: names the key that is missing.
    """
    for key, value in (("node.id", properties.node_id), ("cluster.id", properties.cluster_id)):
        if value is None:
            raise ConfigError(
                f"{meta_properties_path(directory)}: {key} is missing; format the directory for "
                "this cluster"
            )


def _cluster_id_of(ensemble: DirectoryEnsemble) -> str:
    for directory, properties in ensemble.formatted.items():
        check_owner_is_named(directory, properties)
    return next(p.cluster_id for p in ensemble.formatted.values() if p.cluster_id is not None)


def _directory_ids(
    file_system: FileSystem, ensemble: DirectoryEnsemble, new_uuid: UuidSource, now_ms: int
) -> tuple[dict[str, Uuid], dict[str, str]]:
    """Return the ids, and why directories took no new one."""
    ids = {
        directory: properties.directory_id
        for directory, properties in ensemble.formatted.items()
        if properties.directory_id is not None
    }
    refused: dict[str, str] = {}
    for directory, properties in ensemble.formatted.items():
        if directory in ids:
            continue
        new_id = new_directory_id(new_uuid, ids.values())
        completed = replace(properties, directory_id=new_id)
        try:
            write_meta_properties(file_system, directory, completed, now_ms)
        except OSError as error:
            path = meta_properties_path(directory)
            refused[directory] = f"{path} has no directory.id: {error.strerror or error}"
        else:
            ids[directory] = new_id
    return {directory: ids[directory] for directory in ensemble.formatted if directory in ids}, (
        refused
    )


def new_directory_id(new_uuid: UuidSource, taken: Iterable[Uuid]) -> Uuid:
    """Return an id that is not reserved, not taken, and does not begin with a dash as a text."""
    used = tuple(taken)
    while True:
        candidate = new_uuid()
        is_plain = not is_reserved_directory_id(candidate)
        if is_plain and candidate not in used and not uuid_text(candidate).startswith("-"):
            return candidate
