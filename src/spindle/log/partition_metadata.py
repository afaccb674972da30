"""`partition.metadata`: the topic id of a partition directory (KIP-516)."""

from typing import Final

from spindle.common.errors import CorruptLog
from spindle.common.ports import FileSystem
from spindle.common.uuids import ZERO_UUID, Uuid, parse_uuid, uuid_text
from spindle.log.names import PARTITION_METADATA

_VERSION: Final = 0


def write_partition_metadata(file_system: FileSystem, directory: str, topic_id: Uuid) -> None:
    """Write the file; it has to be there before the first byte of data is."""
    text = f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}"
    file_system.write_atomically(f"{directory}/{PARTITION_METADATA}", text.encode())


def read_partition_metadata(file_system: FileSystem, directory: str) -> Uuid | None:
    """The topic id, or None if there is no file (such a directory is a stray).

    Raises:
        CorruptLog: the file does not parse, is of a newer version, or holds the zero id.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if not file_system.exists(path):
        return None
    content = file_system.read_bytes(path)
    try:
        fields = dict(_fields(content.decode()))
        version, topic_id = int(fields["version"]), parse_uuid(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptLog(path, 0, f"not a partition metadata file: {content[:80]!r}") from error
    if not 0 <= version <= _VERSION:
        raise CorruptLog(path, 0, f"version {version}, expected {_VERSION}")
    if topic_id == ZERO_UUID:
        raise CorruptLog(path, 0, "the topic id is zero")
    return topic_id


def _fields(text: str) -> list[tuple[str, str]]:
    fields = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(line)
        fields.append((name.strip(), value.strip()))
    return fields
