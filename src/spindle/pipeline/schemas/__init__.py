"""Keys and values as typed columns: JSON, Avro, Protobuf, and the framing of schema registries.

A decoder turns a BinaryArray into a struct column inside the Python task. It knows nothing of
Spark. A bad value gives a null row with a reason, never a failed batch.
"""

from spindle.pipeline.schemas.avro import AvroDecoder
from spindle.pipeline.schemas.confluent import (
    ConfluentAvroDecoder,
    ConfluentDecoder,
    confluent_protobuf,
)
from spindle.pipeline.schemas.ddl import ddl_columns, ddl_type
from spindle.pipeline.schemas.decoding import Decoded, Decoder
from spindle.pipeline.schemas.json_inference import inferred_type
from spindle.pipeline.schemas.json_schema import json_schema_type
from spindle.pipeline.schemas.json_values import JsonDecoder
from spindle.pipeline.schemas.protobuf import ProtobufDecoder
from spindle.pipeline.schemas.registry import RegistryError, RegistrySettings, newest_schema
from spindle.pipeline.schemas.widening import with_new_fields

__all__ = [
    "AvroDecoder",
    "ConfluentAvroDecoder",
    "ConfluentDecoder",
    "Decoded",
    "Decoder",
    "JsonDecoder",
    "ProtobufDecoder",
    "RegistryError",
    "RegistrySettings",
    "confluent_protobuf",
    "ddl_columns",
    "ddl_type",
    "inferred_type",
    "json_schema_type",
    "newest_schema",
    "with_new_fields",
]
