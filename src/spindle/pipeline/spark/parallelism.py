"""How many cores a read is cut for: those of the executors, not those of the driver's machine.

Spark plans a Python source in a process that cannot ask the session. So a source is registered with
the number of cores at that time, as the default of its option `parallelism`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

OPTION: Final = "parallelism"


def executor_cores(spark: "SparkSession") -> int | None:
    """Return the cores of the executors that have registered or, if more, are configured.

    None means that the session runs elsewhere (Spark Connect) and cannot be asked.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        return None
    context = spark.sparkContext
    conf = context.getConf()
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    instances = conf.get(
        "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances", "0"
    )
    configured = int(instances or 0) * int(conf.get("spark.executor.cores", "1") or 1)
    most = int(conf.get("spark.cores.max", "0") or 0)
    return max(context.defaultParallelism, configured, most)


def for_cores(options: Mapping[str, str], cores: int | None) -> dict[str, str]:
    """Return the options of a read, with this number of cores unless they name one."""
    if cores is None or any(name.lower() == OPTION for name in options):
        return dict(options)
    return {**options, OPTION: str(cores)}


def for_executors(spark: "SparkSession", options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read with the cores of the session, unless they name a number."""
    return for_cores(options, executor_cores(spark))


def with_cores(source: "type[DataSource]", cores: int | None) -> "type[DataSource]":
    """Return the source with this number of cores as the default of its option `parallelism`."""
    if cores is None:
        return source

    class WithCores(source):  # type: ignore[valid-type,misc]
        """A source that plans for the executors of the session that it is registered in."""

        def __init__(self, options: Any) -> None:
            super().__init__(options)
            # Spark passes its own kind of dictionary, which must stay.
            for name, value in for_cores(self.options, cores).items():
                self.options[name] = value

    return WithCores
