"""The settings of an export that do not depend on the format of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from spindle.columnar.columns import EVERY_COLUMN, listed_names
from spindle.pipeline.export.changes import ChangeRule
from spindle.pipeline.export.dead_letter_rule import RAW_COLUMNS
from spindle.pipeline.export.inference import RowsOf, infers_schema, with_inferred_schema
from spindle.pipeline.export.merge_settings import (
    MergeOptions,
    change_rule,
    key_of_rows,
    rule_for_rows,
)
from spindle.pipeline.export.model import ExportSource, ProgressCallback
from spindle.pipeline.export.partitioning import UNPARTITIONED, Partitioning, parse_partition_by
from spindle.pipeline.export.portions import DEFAULT_PORTION, MERGE_PORTION, PortionSize
from spindle.pipeline.export.row_format import Encoding, RowFormat, row_format
from spindle.pipeline.export.sources import export_source, known_options
from spindle.pipeline.export.table import ExportTable, TableLayout
from spindle.pipeline.options.unknown import (
    is_client_property,
    unknown_options,
    warn_of_unknown_options,
)
from spindle.pipeline.schemas.ddl import quoted_name
from spindle.pipeline.schemas.options import DECODING_OPTIONS, bad_records, row_decoding
from spindle.pipeline.schemas.rows import BAD_RECORDS, DEAD_LETTERS

_DECODING: Final = frozenset(name.lower() for name in DECODING_OPTIONS)
COMPRESSIONS: Final = ("snappy", "zstd", "lz4", "gzip", "none")
Begin = Literal["earliest", "latest"]
RecreatedTopic = Literal["refuse", "append"]


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The settings of an export that do not depend on the format of the table.

    Raises:
        ValueError: an unknown compression.
    """

    row_format: RowFormat
    compression: str = "snappy"
    recreated_topic: RecreatedTopic = "refuse"
    portion: PortionSize = DEFAULT_PORTION
    partitioning: Partitioning = UNPARTITIONED
    has_dead_letters: bool = False
    may_add_columns: bool = False
    begin: Begin = "earliest"
    changes: ChangeRule | None = None

    @property
    def merge_key(self) -> str | None:
        """The columns of the key as a table stores them; None for an export that appends."""
        return (
            None if self.changes is None else ",".join(map(quoted_name, self.changes.key_columns))
        )

    @property
    def layout(self) -> TableLayout:
        """The columns of the table."""
        schema = self.partitioning.schema(self.row_format.schema())
        decoded = self.row_format.decoded_columns
        if self.changes is not None:
            # The offsets in the name of a merged file are not those of its rows.
            decoded = frozenset(schema.names)
        return TableLayout(schema, self.partitioning.columns, self.may_add_columns, decoded)

    @property
    def may_mix_topics(self) -> bool:
        return self.recreated_topic == "append"

    def __post_init__(self) -> None:
        if self.begin not in ("earliest", "latest"):
            raise ValueError(f"begin={self.begin!r} is none of earliest, latest")
        if self.compression not in COMPRESSIONS:
            raise ValueError(
                f"compression {self.compression!r} is none of {', '.join(COMPRESSIONS)}"
            )


class ExportOptions(MergeOptions, total=False):
    """The keyword arguments that `export_delta`, `export_iceberg` and `export_parquet` share.

    Those about keys are in MergeOptions.

    source: `spindle` (through the brokers) or `spindle-segments` (from log directories). The
        default is `spindle-segments` if the options have `logDirs`, else `spindle`.
    value: how the table stores values: `binary`, or `string` for values that are UTF-8 (JSON).
    compression: the codec of the Parquet files, one of COMPRESSIONS; the default is snappy.
    partition_by: a comma list of columns by whose values the table is partitioned. `date` and
        `hour` are made of the timestamp.
    begin: where the table begins with a topic that it does not hold: `earliest`, which is the
        start of the options, or `latest`, with the records that come after this run.
    recreated_topic: the reaction to rows in the table of a topic that was since deleted and
        created again: `refuse`, or `append` the rows of the new topic to the old ones.
    portion: how much one commit adds at most. A run that is killed loses one portion.
    progress: called about five times a second on the calling thread, and once at the end.
    """

    source: str
    value: Encoding
    compression: str
    partition_by: str
    begin: Begin
    recreated_topic: RecreatedTopic
    portion: PortionSize
    progress: ProgressCallback


def raw_source(options: Mapping[str, str], given: ExportOptions) -> ExportSource:
    """Return the records that an export reads, not decoded; see `source_and_settings`."""
    name, raw = _raw_source(options, given)
    return export_source(name, _with_columns(raw, None))


def _raw_source(options: Mapping[str, str], given: ExportOptions) -> tuple[str, dict[str, str]]:
    raw = {name: text for name, text in options.items() if name.lower() not in _DECODING}
    if _takes_corrupt_batches(options):
        raw = {name: text for name, text in raw.items() if name.lower() != "corruptbatches"}
    has_directories = any(name.lower() == "logdirs" for name in options)
    return given.get("source", "spindle-segments" if has_directories else "spindle"), raw


def source_and_settings(
    options: Mapping[str, str], given: ExportOptions, table: ExportTable
) -> tuple[ExportSource, ExportSettings]:
    """Return what an export reads and how it writes that.

    Args:
        options: Those of the data source. `badRecords` and `corruptBatches` may also be
            `dead_letters`, and `valueSchema` may be `infer`.
        table: The table before the export.

    Raises:
        ValueError: options that are wrong or do not fit each other.
    """
    name, raw = _raw_source(options, given)
    _check_names(name, options)
    is_inferred = infers_schema(options)
    reactions = (*BAD_RECORDS, DEAD_LETTERS)
    chosen = _listed_columns(options)
    if not is_inferred:
        listed, decoding = row_decoding(options, reactions).choosing(chosen)
        raw = _with_columns(raw, listed)
    elif chosen is not None and (listed := _columns_with_value(chosen)) is not None:
        raw = _with_columns(raw, listed)
        # The fields that are not chosen do not matter.
        options = {"valueUnknownFields": "ignore", **options}
    else:
        chosen = None
    source = export_source(name, raw)
    if given.get("begin") == "latest" and source.start_is_explicit:
        raise ValueError("begin='latest' contradicts the starting offsets of the options")
    columns = source.columns
    rule = change_rule(given)
    partitioning = parse_partition_by(given.get("partition_by"))
    if is_inferred:
        sampled = None if rule is None else _sampled(rule, name, raw, columns)
        options = with_inferred_schema(options, source, table, partitioning, sampled)
        _, decoding = row_decoding(options, reactions).choosing(chosen)
    takes_corrupt = _takes_corrupt_batches(options)
    has_dead_letters = takes_corrupt or bad_records(options) == DEAD_LETTERS
    # Without its offset a bad record could not be named.
    needed = RAW_COLUMNS if has_dead_letters or rule else ("offset",)
    further = [name for name in needed if name not in columns]
    if further or takes_corrupt:
        corrupt = {"corruptBatches": "permissive"} if takes_corrupt else {}
        raw = _with_columns(raw, ",".join((*columns, *further)))
        source = export_source(name, {**raw, **corrupt})
    rows = row_format(columns, key_of_rows(given)[0], given.get("value", "binary"), decoding)
    if rule is not None:
        rule, rows = rule_for_rows(rule, rows)
    settings = ExportSettings(
        rows,
        given.get("compression", "snappy"),
        given.get("recreated_topic", "refuse"),
        given.get("portion", DEFAULT_PORTION if rule is None else MERGE_PORTION),
        partitioning,
        has_dead_letters,
        is_inferred or rule is not None,
        given.get("begin", "earliest"),
        rule,
    )
    settings.partitioning.schema(settings.row_format.schema())
    return source, settings


def _sampled(
    rule: ChangeRule, source: str, options: Mapping[str, str], columns: Sequence[str]
) -> tuple[ExportSource, RowsOf]:
    """Return the source of which the schema of changes is inferred, and the rows of its batches."""
    fields = tuple(name for name in rule.key_columns if name not in EVERY_COLUMN)
    wanted = ",".join(dict.fromkeys((*columns, "key", "value")))
    rows_of = replace(rule, value_keys=fields).sampled
    return export_source(source, _with_columns(options, wanted)), rows_of


def _listed_columns(options: Mapping[str, str]) -> str | None:
    return next((text for name, text in options.items() if name.lower() == "columns"), None)


def _columns_with_value(listed: str) -> str | None:
    """Return the columns of records to read if a list names fields of values, else None.

    The fields are not known yet, so every other name is taken for one.
    """
    known = {name.lower() for name in EVERY_COLUMN}
    names = listed_names(listed)
    of_records = [name for name in names if name.lower() in known]
    if len(of_records) == len(names):
        return None
    return ",".join((*of_records, *([] if "value" in map(str.lower, of_records) else ["value"])))


def _with_columns(options: Mapping[str, str], listed: str | None) -> dict[str, str]:
    """Return the options with another list of columns; None for all columns."""
    others = {name: text for name, text in options.items() if name.lower() != "columns"}
    return others if listed is None else {**others, "columns": listed}


def _check_names(source: str, options: Mapping[str, str]) -> None:
    """Refuse options that the source does not have, and warn of misspelt client properties.

    Property files hold properties of all kinds of clients, so those are no error.
    """
    properties = {name: text for name, text in options.items() if is_client_property(name)}
    warn_of_unknown_options(properties, ())
    own = {name: text for name, text in options.items() if name not in properties}
    for name, nearest in unknown_options(own, known_options(source)).items():
        advice = "" if nearest is None else f"; is {nearest} meant?"
        raise ValueError(f"option {name} is not an option of {source}{advice}")


def _takes_corrupt_batches(options: Mapping[str, str]) -> bool:
    given = {name.lower(): text for name, text in options.items()}
    return given.get("corruptbatches", "").strip().lower() == DEAD_LETTERS
