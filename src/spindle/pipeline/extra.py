"""The libraries of the extra `spindle-log[spark]`, and the error where one is missing."""

import importlib.util
from typing import Final

ARROW: Final = ("pyarrow", "numpy", "numba")
SPARK: Final = ("pyspark", *ARROW)
DELTA: Final = ("deltalake", *ARROW)


def require(names: tuple[str, ...]) -> None:
    """Raise ImportError, naming the packages to install, unless all of them are there."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"not installed: {', '.join(missing)}. They belong to the extra spindle-log[spark]; "
            "README, Install, shows how to install it"
        )
