"""Which log directories get no new replicas (KIP-1066)."""

from collections.abc import Sequence

from spindle.config.log_dir_paths import EVERY_DIRECTORY, cordon_entries, match_paths


def cordoned_paths(
    paths: Sequence[str], configured: Sequence[str], dynamic: str | None
) -> tuple[str, ...]:
    """Return the cordoned paths: of the dynamic `cordoned.log.dirs` if there is one, else of the
    property file.

    Args:
        paths: the log directories.
        configured: entries of the property file.
        dynamic: the text of the dynamic value; None without one.

    Returns:
        Entries of `paths`, in the order of the configuration. An entry that is no log directory is
        left out: the directory may have been removed from `log.dirs` since.
    """
    wanted = tuple(configured) if dynamic is None else cordon_entries(dynamic)
    if wanted == (EVERY_DIRECTORY,):
        return tuple(paths)
    found = match_paths(wanted, paths).values()
    return tuple(dict.fromkeys(path for path in found if path is not None))
