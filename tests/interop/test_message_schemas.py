"""Messages and records have the fields that the schemas in the jars of both releases declare."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest
from peers.paths import OLDER_RELEASE, RELEASE, RELEASES, kafka_libs

from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.protocol import messages
from spindle.protocol.api import APIS, NO_VERSION
from spindle.protocol.message import Field, Message

Schema = dict[str, Any]
Span = tuple[int, int]

WITHOUT_CLASS = re.compile(
    # Keys are read by `dump_records`; the others have formats of their own.
    r"(?!Describe).*Key$|RequestHeader|ResponseHeader|ControlRecordTypeSchema|EndTxnMarker"
    r"|QuorumStateData|ProducerSnapshot|AbortedTxn"
)
_COMMENT = re.compile(r"(^|\s)//.*$", re.MULTILINE)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
RENAMED = {
    "TxnOffsetCommitRequest.GenerationId": "generation_id_or_member_epoch",
    "StreamsGroupHeartbeatResponse.AcceptableRecoveryLag": "acceptable_recovery_lag_legacy",
}
"""Fields of OLDER_RELEASE that have other names in RELEASE."""
ADDED = {
    "StreamsGroupMetadataValue: only here: stored_description_topology_epoch",
    "StreamsGroupMetadataValue: only here: failed_description_topology_epoch",
}
"""Tagged fields that RELEASE has added without a new version."""


class Range(NamedTuple):
    """The versions in which a field has a property."""

    first: int
    last: int

    @classmethod
    def read(cls, text: str, within: Span) -> Range:
        """Read `3+`, `3`, `3-5` or `none`; only the versions `within` count."""
        if text == "none":
            return NEVER
        first, _, last = text.rstrip("+").partition("-")
        end = within[1] if text.endswith("+") else int(last or first)
        return cls.of(int(first), end, within)

    @classmethod
    def of(cls, first: int, last: int, within: Span) -> Range:
        span = cls(max(first, within[0]), min(last, within[1]))
        return span if span.first <= span.last else NEVER


NEVER = Range(1, 0)


@cache
def schemas(release: str) -> dict[str, Schema]:
    """Return the schemas by the name of the message."""
    schemas = {}
    for jar in sorted(kafka_libs(release).glob(f"kafka-*{release}.jar")):
        with ZipFile(jar) as files:
            for name in files.namelist():
                if re.search(r"(^|/)(message|metadata)/\w+\.json$", name):
                    schema = json.loads(_COMMENT.sub("", files.read(name).decode()))
                    if schema["validVersions"] != "none":
                        schemas[schema["name"]] = schema
    return schemas


@cache
def classes() -> dict[str, type[Message]]:
    modules = [
        importlib.import_module(f"{messages.__name__}.{module.name}")
        for module in pkgutil.iter_modules(messages.__path__)
    ]
    return {
        name: member
        for module in modules
        for name, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, Message) and member is not Message
    }


def plain(name: str) -> str:
    """Return a field's name without the marks in which the generator and Kafka differ."""
    return _WORD.sub("_", name).lower().replace("_ms", "").replace("_", "")


def differences(schema: Schema, cls: type[Message], *, is_newest: bool) -> Iterator[str]:
    """Yield what differs in the versions that both have; the newest release has all of ours."""
    name = schema["name"]
    theirs = Range.read(schema["validVersions"], (0, 10**6))
    ours = Range(cls.FIRST_VERSION, cls.LAST_VERSION)
    if (theirs != ours) if is_newest else not set(theirs) <= {*range(ours.first, ours.last + 1)}:
        yield f"{name}: versions {theirs}"
    structs = {field["name"]: field["fields"] for field in schema.get("commonStructs", [])}
    flexible = Range.read(schema.get("flexibleVersions", "none"), theirs)
    yield from _differences(name, schema["fields"], cls, (*theirs,), flexible, structs)


def _differences(
    path: str,
    fields: list[Schema],
    cls: type[Message],
    within: Span,
    flexible: Range,
    structs: dict[str, list[Schema]],
) -> Iterator[str]:
    own = {plain(field.name): field for field in cls.FIELDS}
    for schema in fields:
        # A tagged field is there only in flexible versions.
        span = Range.read(schema.get("versions", "0+"), within)
        if "tag" in schema:
            span = Range.of(span.first, span.last, flexible)
        if span == NEVER:
            continue
        where = f"{path}.{schema['name']}"
        field = own.pop(plain(schema["name"]), None)
        if field is None or Range.of(field.first, field.last, within) != span:
            field = own.pop(plain(RENAMED.get(where, "")), field)
        if field is None:
            yield f"{where}: missing"
            continue
        yield from _field_differences(where, schema, field, span, within)
        if not isinstance(field.type, str):
            inner = schema.get("fields") or structs[schema["type"].removeprefix("[]")]
            yield from _differences(where, inner, field.type, span, flexible, structs)
    for field in own.values():
        if Range.of(field.first, field.last, within) != NEVER:
            yield f"{path}: only here: {field.name}"


def _field_differences(
    where: str, schema: Schema, field: Field, span: Range, within: Span
) -> Iterator[str]:
    kind = schema["type"].removeprefix("[]")
    own_kind = field.type if isinstance(field.type, str) else kind
    if (kind, schema["type"].startswith("[]")) != (own_kind, field.is_array):
        yield f"{where}: type {own_kind}"
    if Range.of(field.first, field.last, within) != span:
        yield f"{where}: versions {field.first} to {field.last}"
    if Range.of(field.nullable, 10**6, span) != Range.read(
        schema.get("nullableVersions", "none"), span
    ):
        yield f"{where}: nullable"
    tagged = Range.read(schema.get("taggedVersions", "none"), span)
    if Range.of(field.tagged, 10**6, span) != tagged:
        yield f"{where}: tagged"
    if tagged != NEVER and field.tag != schema["tag"]:
        yield f"{where}: tag {field.tag}"


@pytest.mark.parametrize("release", RELEASES)
def test_every_message_of_kafka_has_a_class(release: str) -> None:
    names = {*schemas(release)}
    assert {"BrokerHeartbeatRequest", "RegisterBrokerRecord", "ShareSnapshotValue"} <= names
    absent = {name for name in names if name not in classes()}
    assert {name for name in absent if not WITHOUT_CLASS.fullmatch(name)} == set()


@pytest.mark.parametrize("kind", ["request", "response", "other"])
@pytest.mark.parametrize("release", RELEASES)
def test_every_field_is_that_of_kafka(release: str, kind: str) -> None:
    compared = 0
    different: list[str] = []
    for name, schema in schemas(release).items():
        group = schema["type"] if schema["type"] in ("request", "response") else "other"
        if group == kind and name in classes() and not WITHOUT_CLASS.fullmatch(name):
            compared += 1
            different += differences(schema, classes()[name], is_newest=release == RELEASE)
    assert compared > 20
    assert set(different) - (ADDED if release == OLDER_RELEASE else set()) == set()


def test_every_api_has_the_key_versions_and_listeners_of_kafka() -> None:
    requests = {s["apiKey"]: s for s in schemas(RELEASE).values() if s["type"] == "request"}
    for key, api in APIS.items():
        if api.is_private:
            continue
        schema = requests[key]
        first, last = Range.read(schema["validVersions"], (0, 10**6))
        flexible = Range.read(schema["flexibleVersions"], (first, last))
        if schema.get("latestVersionUnstable"):
            last -= 1
        assert (api.first_version, api.last_version) == (first, last), api.name
        flexible_from = NO_VERSION if flexible == NEVER else flexible.first
        assert max(api.flexible_from, first) == flexible_from, api.name
        listeners = {"broker": api.on_broker, "controller": api.on_controller}
        assert {name for name, is_there in listeners.items() if is_there} == {*schema["listeners"]}


def test_an_entry_of_the_transaction_index_has_the_fields_of_kafka() -> None:
    fields = schemas(RELEASE)["AbortedTxn"]["fields"]
    assert [(plain(f["name"]), f["type"]) for f in fields] == [
        (plain(name), "int64") for name in AbortedTransaction._fields
    ]
