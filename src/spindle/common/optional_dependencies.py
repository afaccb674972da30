"""The libraries of the extras, and the error where one is missing."""

import importlib.util
from typing import Final

NUMPY: Final = ("numpy",)
ARROW: Final = ("pyarrow", "numpy", "numba")
SPARK: Final = ("pyspark", *ARROW)
DELTA: Final = ("deltalake", *ARROW)
AVRO: Final = ("fastavro",)
PROTOBUF: Final = ("google.protobuf",)
ICEBERG: Final = ("pyiceberg", "sqlalchemy")


def require(names: tuple[str, ...], extra: str = "spark") -> None:
    """Raise ImportError, naming the packages of an extra, unless all of them are there."""
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        belong = "It belongs" if len(missing) == 1 else "They belong"
        raise ImportError(
            f"not installed: {', '.join(missing)}. {belong} to the extra spindle-log[{extra}]; "
            f"README, Install, shows how to install it."
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        # The package around it is missing as well.
        return False
