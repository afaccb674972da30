"""Which log directories get no new replicas (KIP-1066)."""

from collections.abc import Sequence


def cordoned_paths(
    paths: Sequence[str], configured: Sequence[str], dynamic: str | None
) -> Sequence[str]:
    """Return the cordoned paths: the dynamic `cordoned.log.dirs` if there is one, else the one of
    the property file.

    A dynamic value that names a directory outside of `paths` counts as empty: the directory may
    have been removed from log.dirs since.
    """
    if dynamic is None:
        return configured
    wanted = [entry.strip() for entry in dynamic.split(",") if entry.strip()]
    if wanted == ["*"]:
        return paths
    return wanted if all(path in paths for path in wanted) else ()
