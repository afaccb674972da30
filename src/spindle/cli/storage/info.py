"""The content of the log directories of a node: their identities and problems."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from spindle.common.errors import ConfigError
from spindle.common.ports import FileSystem
from spindle.log.formats.meta_properties import (
    MetaProperties,
    meta_properties_path,
    parse_meta_properties,
)


@dataclass(slots=True)
class StorageInfo:
    """The findings, in order of the directories; `metadata` is that of the first formatted one."""

    directories: list[str] = field(default_factory=list)
    metadata: MetaProperties | None = None
    problems: list[str] = field(default_factory=list)


def inspect_storage(file_system: FileSystem, directories: Sequence[str]) -> StorageInfo:
    """Inspect each directory, in the order of the paths."""
    info = StorageInfo()
    for directory in sorted(dict.fromkeys(directories)):
        try:
            _inspect(file_system, directory, info)
        except OSError as error:
            info.problems.append(f"{directory} cannot be read: {error.strerror or error}")
    if info.metadata is not None and info.metadata.version == 0:
        info.problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but the "
            "directories are formatted for legacy mode."
        )
    return info


def _inspect(file_system: FileSystem, directory: str, info: StorageInfo) -> None:
    if not file_system.is_directory(directory):
        state = "is not a directory" if file_system.exists(directory) else "does not exist"
        info.problems.append(f"{directory} {state}")
        return
    info.directories.append(directory)
    path = meta_properties_path(directory)
    if not file_system.exists(path):
        info.problems.append(f"{directory} is not formatted.")
        return
    try:
        meta_properties = parse_meta_properties(file_system.read_bytes(path), path)
    except ConfigError as error:
        info.problems.append(f"Error loading {path}: {error}")
        return
    if info.metadata is None:
        info.metadata = meta_properties
    elif meta_properties.cluster_id != info.metadata.cluster_id:
        info.problems.append("Mismatched cluster IDs between storage directories.")
    elif meta_properties.node_id != info.metadata.node_id:
        info.problems.append("Mismatched node IDs between storage directories.")


def storage_info_lines(info: StorageInfo) -> list[str]:
    """Return the report as Kafka's tool prints it."""
    lines: list[str] = []
    if info.directories:
        lines.append(f"Found log {'directory' if len(info.directories) == 1 else 'directories'}:")
        lines += [f"  {directory}" for directory in info.directories]
        lines.append("")
    if info.metadata is not None:
        lines += [f"Found metadata: {info.metadata}", ""]
    if info.problems:
        lines.append(f"Found {'problem' if len(info.problems) == 1 else 'problems'}:")
        lines += [f"  {problem}" for problem in info.problems]
        lines.append("")
    return lines
