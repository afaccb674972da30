"""Which log directories get no new replicas (KIP-1066)."""

from collections.abc import Sequence


def cordoned_paths(
    paths: Sequence[str], configured: Sequence[str], dynamic: str | None
) -> Sequence[str]:
    """`cordoned.log.dirs`, the dynamic value over the one of the property file.

    A dynamic value that names a directory which is none of `paths` counts as empty: the directory
    may have been taken out of log.dirs since.
    """
    if dynamic is None:
        return configured
    wanted = [entry.strip() for entry in dynamic.split(",") if entry.strip()]
    if wanted == ["*"]:
        return paths
    return wanted if all(path in paths for path in wanted) else ()
