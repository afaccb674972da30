"""`partition.metadata`: the topic id of a partition directory (KIP-516)."""

from typing import Final

from spindle.common.errors import CorruptLog
from spindle.common.ports import FileSystem
from spindle.common.uuids import ZERO_UUID, Uuid, parse_uuid, uuid_text
from spindle.log.formats.names import PARTITION_METADATA

_VERSION: Final = 0
_HEAD: Final = f"version: {_VERSION}\ntopic_id: "
_ID_CHARACTERS: Final = 22


def write_partition_metadata(
    file_system: FileSystem, directory: str, topic_id: Uuid, *, is_durable: bool
) -> None:
    """Write the file; it has to be on the device (`is_durable`) before the first byte of data."""
    path = f"{directory}/{PARTITION_METADATA}"
    content = f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()
    if is_durable:
        file_system.write_atomically(path, content)
        return
    file = file_system.open(path, create=True)
    try:
        file.truncate(0)
        file.pwrite(content, 0)
    finally:
        file.close()


def read_partition_metadata(
    file_system: FileSystem, directory: str, *, may_be_torn: bool = False
) -> Uuid | None:
    """Return the topic id; None without a file or with an empty one (a stray directory).

    Args:
        may_be_torn: the log has no data. A power failure may then have left a prefix of the file,
            or zeros, which count as an empty file.

    Raises:
        CorruptLog: the file does not parse, is of a newer version, or holds the zero id.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        content = file_system.read_bytes(path)
    except FileNotFoundError:
        return None
    if not content or (may_be_torn and _is_torn(content)):
        return None
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


def _is_torn(content: bytes) -> bool:
    """Return whether this is a prefix of a valid file, possibly padded with zeros."""
    text = content.rstrip(b"\0").decode(errors="replace")
    return len(text) < len(_HEAD) + _ID_CHARACTERS and text[: len(_HEAD)] == _HEAD[: len(text)]


def _fields(text: str) -> list[tuple[str, str]]:
    fields = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(line)
        fields.append((name.strip(), value.strip()))
    return fields
