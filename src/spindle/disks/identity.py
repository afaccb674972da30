"""Who a log directory belongs to: `meta.properties`, and the checks over all directories of a node.

Decides which directories a node may work with at its start: every readable one must be formatted,
for the same cluster and for this node, with an id of its own (KIP-858). A directory that cannot be
read is offline from the start and does not hinder the others, unless it holds the metadata log.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from spindle.common.errors import ConfigError
from spindle.common.ids import METADATA_PARTITION
from spindle.common.ports import FileSystem
from spindle.common.uuids import (
    Uuid,
    UuidSource,
    is_reserved_directory_id,
    parse_uuid,
    uuid_text,
)
from spindle.config.properties import decode_properties, format_properties, parse_properties

META_PROPERTIES: Final = "meta.properties"

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of one `meta.properties`.

    Attributes:
        version: 1 where a KRaft node wrote it, 0 where ZooKeeper-era Kafka did.
        cluster_id: any text; None only in version 0.
        node_id: `node.id` in version 1, `broker.id` in version 0; None only in version 0.
        directory_id: None where it was written before directories had ids.
        others: further keys, kept as they are.
    """

    version: int = 1
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: Uuid | None = None
    others: Mapping[str, str] = field(default_factory=dict)

    def texts(self) -> dict[str, str]:
        """Keys and values in the order in which they are written."""
        texts = dict(self.others)
        if self.node_id is not None:
            texts["node.id" if self.version else "broker.id"] = str(self.node_id)
        if self.directory_id is not None:
            texts["directory.id"] = uuid_text(self.directory_id)
        texts["version"] = str(self.version)
        if self.cluster_id is not None:
            texts["cluster.id"] = self.cluster_id
        return texts

    def __str__(self) -> str:
        pairs = sorted(self.texts().items())
        return "{" + ", ".join(f"{key}={value}" for key, value in pairs) + "}"


def meta_properties_path(directory: str) -> str:
    return f"{directory.rstrip('/')}/{META_PROPERTIES}"


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """The content of a file.

    Raises:
        ConfigError: a value cannot be understood, or version 1 lacks an id it must have.
    """
    texts = parse_properties(decode_properties(data), source=path)
    version = _integer(texts.pop("version", "0"), "version", path)
    if version not in (0, 1):
        raise ConfigError(f"{path}: version={version} is not known; known are 0 and 1")
    node_key = "node.id" if version else "broker.id"
    cluster_id = texts.pop("cluster.id", None)
    node_text = texts.pop(node_key, None)
    directory_text = texts.pop("directory.id", None)
    for key, text in (("cluster.id", cluster_id), (node_key, node_text)):
        if version and text is None:
            raise ConfigError(f"{path}: {key} is missing, which version 1 must have")
    try:
        directory_id = None if directory_text is None else parse_uuid(directory_text.strip())
    except ValueError as error:
        raise ConfigError(f"{path}: directory.id: {error}") from None
    node_id = None if node_text is None else _integer(node_text, node_key, path)
    return MetaProperties(version, cluster_id, node_id, directory_id, texts)


def _integer(text: str, key: str, path: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{path}: {key}={text} is not a number") from None


def encode_meta_properties(properties: MetaProperties, now_ms: int) -> bytes:
    """The file as Kafka writes it: an empty comment, the time, then the keys."""
    head = f"#\n#{_java_date(now_ms)}\n"
    return (head + format_properties(properties.texts())).encode()


def _java_date(now_ms: int) -> str:
    at = datetime.fromtimestamp(now_ms // 1000, UTC)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day} {month} {at.day:02d} {at:%H:%M:%S} UTC {at.year}"


def write_meta_properties(
    file_system: FileSystem, directory: str, properties: MetaProperties, now_ms: int
) -> None:
    """Replace the file of a directory atomically; OSError if the disk refuses."""
    data = encode_meta_properties(properties, now_ms)
    file_system.write_atomically(meta_properties_path(directory), data)


@dataclass(frozen=True, slots=True)
class DirectoryEnsemble:
    """What was found in a node's directories. Each mapping and tuple is sorted by path.

    Attributes:
        formatted: directories with a `meta.properties` that was understood.
        unformatted: directories without the file (or that do not exist).
        failed: directories that could not be read, with the reason.
    """

    formatted: Mapping[str, MetaProperties]
    unformatted: tuple[str, ...]
    failed: Mapping[str, str]


def load_ensemble(file_system: FileSystem, directories: Sequence[str]) -> DirectoryEnsemble:
    """Read the `meta.properties` of each directory (twice the same directory counts once)."""
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
            failed[directory] = f"{path}: {error.strerror or error}"
        except ConfigError as error:
            failed[directory] = str(error)
    return DirectoryEnsemble(formatted, tuple(unformatted), failed)


def check_ensemble(
    ensemble: DirectoryEnsemble, node_id: int, cluster_id: str | None = None
) -> None:
    """Refuse directories that do not belong together.

    Args:
        cluster_id: what every directory must say; None takes the first one's.

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
    """What a node knows of its directories when it may start.

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
    """Check the directories of a node that starts; a missing `directory.id` is made and written.

    Raises:
        ConfigError: the node must not start; names file, key, value and what to do.
        OSError: a new directory id could not be written.
    """
    ensemble = load_ensemble(file_system, (*log_dirs, metadata_log_dir))
    if not ensemble.formatted:
        raise ConfigError(_nothing_formatted(ensemble))
    check_ensemble(ensemble, node_id)
    if metadata_log_dir in ensemble.failed:
        raise ConfigError(
            f"the metadata log directory {metadata_log_dir} cannot be read: "
            f"{ensemble.failed[metadata_log_dir]}; the node cannot start without it"
        )
    _check_metadata_log_place(file_system, ensemble, metadata_log_dir)
    if ensemble.unformatted:
        raise ConfigError(
            f"No `{META_PROPERTIES}` found in {ensemble.unformatted[0]}: the directory is not "
            "formatted; run `spindle storage format --ignore-formatted` with the id of this "
            "cluster, or take it out of log.dirs"
        )
    return DirectoryIdentities(
        _cluster_id_of(ensemble),
        _directory_ids(file_system, ensemble, new_uuid, now_ms),
        ensemble.failed,
    )


def _nothing_formatted(ensemble: DirectoryEnsemble) -> str:
    reasons = [f"{directory} is not formatted" for directory in ensemble.unformatted]
    reasons += ensemble.failed.values()
    return (
        f"No readable {META_PROPERTIES} files found: {'; '.join(reasons)}. Format the directories "
        "with `spindle storage format -t CLUSTER_ID -c FILE`"
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


def _cluster_id_of(ensemble: DirectoryEnsemble) -> str:
    for directory, properties in ensemble.formatted.items():
        for key, value in (
            ("node.id", properties.node_id),
            ("cluster.id", properties.cluster_id),
        ):
            if value is None:
                raise ConfigError(
                    f"{meta_properties_path(directory)}: {key} is missing; format the directory "
                    "for this cluster"
                )
    return next(p.cluster_id for p in ensemble.formatted.values() if p.cluster_id is not None)


def _directory_ids(
    file_system: FileSystem, ensemble: DirectoryEnsemble, new_uuid: UuidSource, now_ms: int
) -> dict[str, Uuid]:
    ids = {
        directory: properties.directory_id
        for directory, properties in ensemble.formatted.items()
        if properties.directory_id is not None
    }
    for directory, properties in ensemble.formatted.items():
        if directory not in ids:
            ids[directory] = new_directory_id(new_uuid, ids.values())
            completed = replace(properties, directory_id=ids[directory])
            write_meta_properties(file_system, directory, completed, now_ms)
    return {directory: ids[directory] for directory in ensemble.formatted}


def new_directory_id(new_uuid: UuidSource, taken: Iterable[Uuid]) -> Uuid:
    """An id that is not reserved, not taken, and does not begin with a dash in its text form."""
    used = tuple(taken)
    while True:
        candidate = new_uuid()
        is_plain = not is_reserved_directory_id(candidate)
        if is_plain and candidate not in used and not uuid_text(candidate).startswith("-"):
            return candidate
