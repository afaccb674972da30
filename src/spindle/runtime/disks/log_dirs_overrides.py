"""The log directories that a node uses at a start, after an earlier run has added or removed
some."""

import logging
from collections.abc import Sequence

from spindle.common.errors import ConfigError
from spindle.common.ports import FileSystem
from spindle.common.text import error_text
from spindle.log.formats.changed_log_dirs import ChangedLogDirs, read_changed_log_dirs
from spindle.log.formats.meta_properties import meta_properties_path

log = logging.getLogger(__name__)


def changed_log_dirs(
    file_system: FileSystem, metadata_log_dir: str, configured: Sequence[str]
) -> ChangedLogDirs:
    """Return the differences from `log.dirs`, and log them.

    Raises:
        ConfigError: the file that remembers it cannot be read or understood.
    """
    try:
        changed = read_changed_log_dirs(file_system, metadata_log_dir).settled(configured)
    except OSError as error:
        try:
            file_system.read_bytes(meta_properties_path(metadata_log_dir))
        except OSError:  # the later checks of the directory report the cause
            return ChangedLogDirs()
        # Without the file, added directories would count as lost and removed ones would be used.
        raise ConfigError(
            f"the metadata log directory {metadata_log_dir} fails: {error_text(error)}"
        ) from None
    for path in changed.added:
        log.warning(
            "%s was added while the broker ran, and log.dirs does not name it; it is used. Add it "
            "to log.dirs in the property file, or remove it with `spindle disks remove`",
            path,
        )
    for path in changed.removed:
        log.warning(
            "log.dirs names %s, which was removed while the broker ran; it is not used. Remove "
            "it from log.dirs in the "
            "property file, or use it again with `spindle disks add`",
            path,
        )
    return changed
