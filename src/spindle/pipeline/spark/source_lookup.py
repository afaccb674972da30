"""Spare a new session the search for installed data sources (`pyspark_*`) if there are none.

Spark searches in a Python process that it starts when the first source is registered. That takes
time, and when Spark closes the idle process a minute later, PySpark writes a traceback to standard
error.
"""

from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX: Final = "pyspark_"


def skip_lookup(spark: "SparkSession") -> None:
    """Make Spark believe that no data sources are installed, unless there are some."""
    if any(module.name.startswith(_PREFIX) for module in iter_modules()):
        return
    jvm: Any = spark.sparkContext._jvm
    package = jvm.org.apache.spark.sql.execution.datasources
    try:
        manager = getattr(getattr(package, "DataSourceManager$"), "MODULE$")
        none = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        if manager.dataSourceBuilders().isEmpty():
            getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Some(none))
    except (Py4JError, TypeError):
        # A version of Spark that keeps its sources elsewhere searches as always.
        return
