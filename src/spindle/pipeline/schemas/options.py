"""The options that choose how keys and values are decoded; names as in the options of a source.

    valueFormat        json, avro or protobuf; without it values stay bytes
    valueSchema        json: columns as in Spark ("id BIGINT, name STRING"), a StructType as its
                       json() or simpleString() gives it, or a JSON Schema, or in an export
                       `infer`: from a sample, with new columns for new fields;
                       avro: the JSON text of the writer's schema
    valueSchemaFile    a file that holds it; for protobuf a FileDescriptorSet, which
                       `protoc --include_imports --descriptor_set_out=FILE` makes
    valueReaderSchema  avro: the schema of the rows, if it is newer than the writer's
    valueMessage       protobuf: the complete name of the message
    valueLayout        columns (default): fields become columns; struct: one column `value`
    valueUnknownFields json: ignore (default) fields that are not in the schema, or refuse: they
                       make a record bad
    schemaRegistry.url        values have Confluent's header; without a schema of its own, a read
                              takes the newest one of the subject
    schemaRegistry.user, schemaRegistry.password, schemaRegistry.timeoutMs
    valueSubject       the subject; the default is TOPIC-value
    badRecords         fail (default) or permissive: bad records have nulls, a reason in the column
                       value_error and their bytes in value_raw. In an export also dead_letters:
                       they go into a table beside the exported one

All options that begin with `value` exist with `key`, too.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

from spindle.common.optional_dependencies import AVRO, PROTOBUF, require
from spindle.common.text import error_text
from spindle.pipeline.options.values import MAX_INT, choice, lower_names, number
from spindle.pipeline.schemas.avro import AvroDecoder
from spindle.pipeline.schemas.confluent import (
    ConfluentAvroDecoder,
    ConfluentDecoder,
    confluent_protobuf,
)
from spindle.pipeline.schemas.ddl import ddl_type, spark_json_type
from spindle.pipeline.schemas.decoding import Decoder
from spindle.pipeline.schemas.field_names import check_names
from spindle.pipeline.schemas.json_schema import json_schema_type
from spindle.pipeline.schemas.json_values import JsonDecoder
from spindle.pipeline.schemas.protobuf import ProtobufDecoder
from spindle.pipeline.schemas.registry import RegistrySettings, newest_schema
from spindle.pipeline.schemas.rows import (
    BAD_RECORDS,
    DEAD_LETTERS,
    LAYOUTS,
    DecodedColumn,
    RowDecoding,
)

FORMATS: Final = ("json", "avro", "protobuf")
_OF_A_COLUMN: Final = (
    "Format",
    "Schema",
    "SchemaFile",
    "ReaderSchema",
    "Message",
    "Layout",
    "UnknownFields",
    "Subject",
)
_OF_ALL: Final = (
    "badRecords",
    "schemaRegistry.url",
    "schemaRegistry.user",
    "schemaRegistry.password",
    "schemaRegistry.timeoutMs",
)
DECODING_OPTIONS: Final = (
    *(f"{column}{name}" for column in ("key", "value") for name in _OF_A_COLUMN),
    *_OF_ALL,
)
_REGISTRY_TIMEOUT_MS: Final = 10_000


def row_decoding(given: Mapping[str, str], reactions: tuple[str, ...] = BAD_RECORDS) -> RowDecoding:
    """Return how the rows of a read are decoded. It reads schema files and asks the registry.

    Args:
        given: All options of the read; upper and lower case of names do not matter.
        reactions: The values that the option `badRecords` may have.

    Raises:
        ValueError: an option is wrong, missing, or without use; or a schema is wrong.
        RegistryError: the registry does not have the schema, or gives no answer.
    """
    options = lower_names(given)
    columns = [_Column(name, options) for name in ("key", "value")]
    parts = [column.decoded() for column in columns if column.is_decoded]
    reaction = _choice(options, "badRecords", reactions)
    if not parts:
        for name in _OF_ALL:
            # Dead letters take what is not text or cannot be stored, too.
            if name.lower() in options and not (name == "badRecords" and reaction == DEAD_LETTERS):
                raise ValueError(f"option {name} has no use without keyFormat or valueFormat")
    return RowDecoding(tuple(parts), reaction == "permissive")


class _Column(NamedTuple):
    """The options of the key or of the value."""

    name: str
    options: Mapping[str, str]

    @property
    def is_decoded(self) -> bool:
        """Return whether there is a format.

        Raises:
            ValueError: there is none, but another option of this column.
        """
        if self._given("Format") is not None:
            return True
        for suffix in _OF_A_COLUMN:
            if self._given(suffix) is not None:
                raise ValueError(
                    f"option {self.name}{suffix} has no use without {self.name}Format "
                    f"({', '.join(FORMATS)})"
                )
        return False

    def decoded(self) -> DecodedColumn:
        kind = _choice(self.options, f"{self.name}Format", FORMATS)
        registry = _registry(self.options)
        decoder: Decoder
        match kind:
            case "json":
                self._refuse("ReaderSchema", "Message")
                decoder = self._json(registry)
            case "avro":
                require(AVRO, "schemas")
                self._refuse("Message", "UnknownFields")
                decoder = self._avro(registry)
            case _:
                require(PROTOBUF, "schemas")
                self._refuse("Schema", "ReaderSchema", "UnknownFields", "Subject")
                decoder = self._protobuf(registry)
        with self._schema_named():
            check_names(decoder.type)
        layout: Any = _choice(self.options, f"{self.name}Layout", LAYOUTS)
        return DecodedColumn(self.name, decoder, layout)

    def _json(self, registry: RegistrySettings | None) -> Decoder:
        refuses = _choice(self.options, f"{self.name}UnknownFields", ("ignore", "refuse"))
        text = self._schema_text()
        if text is None:
            text = self._newest(registry, "JSON")
        if text.strip().lower() == "infer":
            raise ValueError(
                f"option {self.name}Schema=infer is for the values of exports; a read has to know "
                "the schema when it is planned"
            )
        with self._schema_named():
            decoder = JsonDecoder(json_type(text), refuses == "refuse")
        return decoder if registry is None else ConfluentDecoder(decoder)

    def _avro(self, registry: RegistrySettings | None) -> Decoder:
        text, reader = self._schema_text(), self._given("ReaderSchema")
        if registry is None:
            if text is None:
                raise self._missing("Schema", "or schemaRegistry.url")
            with self._schema_named():
                AvroDecoder(text)
            with self._named("ReaderSchema"):
                return AvroDecoder(text, reader)
        if text is not None and reader is not None:
            raise ValueError(
                f"option {self.name}Schema has no use beside {self.name}ReaderSchema: the registry "
                "has the writer's schemas"
            )
        decoder = ConfluentAvroDecoder(registry, reader or text or self._newest(registry, "AVRO"))
        AvroDecoder(decoder.reader_schema)
        return decoder

    def _protobuf(self, registry: RegistrySettings | None) -> Decoder:
        path, message = self._given("SchemaFile"), self._given("Message")
        if path is None:
            raise self._missing("SchemaFile", "a FileDescriptorSet made by protoc")
        if message is None:
            raise self._missing("Message", "the complete name of the message")
        decoder = ProtobufDecoder(self._read(path), message)
        return decoder if registry is None else confluent_protobuf(decoder)

    @contextmanager
    def _named(self, suffix: str) -> Iterator[None]:
        """Name the option in an error about its value."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"option {self.name}{suffix}: {error}") from None

    def _schema_named(self) -> AbstractContextManager[None]:
        """Name the option that has the schema, unless a registry has it."""
        for suffix in ("Schema", "SchemaFile"):
            if self._given(suffix) is not None:
                return self._named(suffix)
        return nullcontext()

    def _schema_text(self) -> str | None:
        text, path = self._given("Schema"), self._given("SchemaFile")
        if path is None:
            return text
        if text is not None:
            raise ValueError(f"want one of {self.name}Schema and {self.name}SchemaFile, got both")
        return self._read(path).decode()

    def _read(self, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"option {self.name}SchemaFile: {error_text(error)}") from None

    def _newest(self, registry: RegistrySettings | None, kind: str) -> str:
        if registry is None:
            raise self._missing("Schema", 'such as "id BIGINT, name STRING"')
        subject = self._given("Subject")
        if subject is None:
            topics = self.options.get("subscribe", "").split(",")
            if len(topics) != 1 or not topics[0].strip():
                raise self._missing("Subject", "because the read is not of one subscribed topic")
            subject = f"{topics[0].strip()}-{self.name}"
        schema = newest_schema(registry, subject)
        if schema.kind != kind:
            raise ValueError(f"the schema of the subject {subject!r} is {schema.kind}, not {kind}")
        return schema.text

    def _refuse(self, *suffixes: str) -> None:
        for suffix in suffixes:
            if self._given(suffix) is not None:
                kind = self._given("Format")
                raise ValueError(
                    f"option {self.name}{suffix} has no use with {self.name}Format={kind}"
                )

    def _given(self, suffix: str) -> str | None:
        return self.options.get(f"{self.name}{suffix}".lower())

    def _missing(self, suffix: str, advice: str) -> ValueError:
        kind = self._given("Format")
        return ValueError(
            f"option {self.name}{suffix} is missing for {self.name}Format={kind}, {advice}"
        )


def json_type(text: str) -> Any:
    """Return the struct type of a schema text.

    It is one of Spark's (columns, or a StructType as `simpleString()` or `json()` give it), or a
    JSON Schema.

    Raises:
        ValueError: none of them.
    """
    if not text.lstrip().startswith("{"):
        return ddl_type(text)
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the JSON schema is not JSON: {error}") from None
    if schema.get("type") == "struct":
        return spark_json_type(schema)
    return json_schema_type(schema)


def _registry(options: Mapping[str, str]) -> RegistrySettings | None:
    given = {name: options.get(f"schemaRegistry.{name}".lower()) for name in ("user", "password")}
    url = options.get("schemaregistry.url")
    if url is None:
        for name in ("user", "password", "timeoutMs"):
            if f"schemaRegistry.{name}".lower() in options:
                raise ValueError(f"option schemaRegistry.{name} has no use without the url")
        return None
    timeout_ms = number(options, "schemaRegistry.timeoutMs", _REGISTRY_TIMEOUT_MS, 1, MAX_INT)
    return RegistrySettings(url, given["user"], given["password"], timeout_ms)


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    return choice(options, name, {word: word for word in choices}, choices[0])


def bad_records(given: Mapping[str, str]) -> str:
    """Return the option `badRecords` as it stands; `row_decoding` checks it."""
    options = lower_names(given)
    return options.get("badrecords", BAD_RECORDS[0]).strip().lower()
