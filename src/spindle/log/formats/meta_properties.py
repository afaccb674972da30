"""`meta.properties`: the cluster, the node and the id of a log directory (KIP-858)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from spindle.common.errors import ConfigError
from spindle.common.ports import FileSystem
from spindle.common.uuids import Uuid, parse_uuid, uuid_text
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
        """Return keys and values in the order in which they are written."""
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
    """Return the path of the directory's `meta.properties`."""
    return f"{directory.rstrip('/')}/{META_PROPERTIES}"


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Return the values of a file.

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
    """Return the file's bytes as Kafka writes them: an empty comment, the time, the keys."""
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
