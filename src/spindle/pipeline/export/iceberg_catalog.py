"""Where an Iceberg table is registered: an SQLite file beside it, or any catalog of pyiceberg."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spindle.pipeline.export.model import ExportRefused
from spindle.pipeline.export.parquet_files import STATISTICS
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.table import TableLayout

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import CreateTableTransaction, Table

CATALOG_FILE: Final = "iceberg_catalog.db"
NAMESPACE: Final = "default"


@dataclass(frozen=True)
class IcebergPlace:
    """The catalog of a table and its name there. The catalog is opened at its first use.

    Args:
        properties: those of `pyiceberg.catalog.load_catalog`.
        identifier: namespace and name.
        location: the directory of a new table; None lets the catalog choose.
    """

    properties: Mapping[str, str]
    identifier: tuple[str, ...]
    location: str | None = None

    @property
    def name(self) -> str:
        return self.location or ".".join(self.identifier)

    @cached_property
    def catalog(self) -> "Catalog":
        """The catalog; opening it costs a check of its tables, or a request.

        Raises:
            ValueError: properties that name no catalog.
        """
        from pyiceberg.catalog import load_catalog

        if self.location is not None:
            Path(self.location).parent.mkdir(parents=True, exist_ok=True)
        try:
            return load_catalog("spindle", **self.properties)
        except Exception as error:
            if not _lost_race(error):
                raise
            # Another process has made the tables of the catalog at the same time.
            return load_catalog("spindle", **self.properties)

    def load(self) -> "Table | None":
        """Return the table, None if there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self._has_no_catalog_yet():
            return None
        try:
            return self.catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def new_table(
        self, layout: TableLayout, location: str | None = None
    ) -> "CreateTableTransaction":
        """Return a transaction that makes the table. Before its commit no catalog has the table.

        Args:
            location: The directory of the table if this place does not contain it.
        """
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        catalog = self.catalog
        try:
            catalog.create_namespace_if_not_exists(self.identifier[:-1])
        except NamespaceAlreadyExistsError:
            pass
        except Exception as error:
            if not _lost_race(error):
                raise
        options: dict[str, Any] = {"properties": _metrics(layout)}
        if self.location is not None:
            location = f"file://{self.location}"
        table = catalog.create_table_transaction(
            self.identifier, layout.schema, location, **options
        )
        with table.update_spec() as spec:
            for name in layout.partition_by:
                spec.add_identity(name)
        return table

    def _has_no_catalog_yet(self) -> bool:
        """Return True if asking the catalog would make its file."""
        return self.location is not None and not (
            Path(self.location).with_name(CATALOG_FILE).exists()
        )


def iceberg_place(table: str | Path, catalog: Mapping[str, str] | None) -> IcebergPlace:
    """Return the place of a table: a path, or NAMESPACE.NAME in a catalog with these properties.

    Raises:
        ValueError: a path that is no local path, or a name without a namespace.
    """
    if catalog is not None:
        identifier = tuple(str(table).split("."))
        if len(identifier) < 2 or not all(identifier):
            raise ValueError(f"table {str(table)!r}: want NAMESPACE.NAME in a catalog")
        return IcebergPlace(catalog, identifier)
    directory = local_directory(table)
    unusable = [character for character in "#?%" if character in str(directory)]
    if unusable:
        raise ValueError(
            f"path {str(directory)!r}: Iceberg names files by URLs, so the path cannot have the "
            f"character {unusable[0]!r}"
        )
    uri = f"sqlite:///{directory.with_name(CATALOG_FILE)}"
    properties = {"type": "sql", "uri": uri, "warehouse": f"file://{directory.parent}"}
    return IcebergPlace(properties, (NAMESPACE, directory.name), str(directory))


def data_directory(name: str, location: str) -> Path:
    """Return the directory of the data files of a table.

    Raises:
        ExportRefused: the table lies in an object store.
    """
    if "://" in location and not location.startswith("file://"):
        raise ExportRefused(
            f"the table {name} lies at {location}; exports write to local and "
            "shared file systems only"
        )
    return Path(location.removeprefix("file://").removeprefix("file:")) / "data"


def _metrics(layout: TableLayout) -> dict[str, str]:
    """Return the properties that name the columns with statistics: files have no others."""
    of_records = {*STATISTICS} - layout.without_statistics
    columns = {*of_records, *layout.partition_by} & {*layout.schema.names}
    full = {f"write.metadata.metrics.column.{name}": "full" for name in sorted(columns)}
    return {"write.metadata.metrics.default": "none", **full}


def _lost_race(error: Exception) -> bool:
    return "already exists" in str(error) or "UNIQUE constraint" in str(error)
