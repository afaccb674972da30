"""kafka-dump-log on internal topics: our tool and Kafka's decode the same records.

The segments hold a record of every type and version, written here, and those that a node of Kafka
wrote for real groups and transactions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.compare import difference
from peers.home_scripts import run_script
from peers.java_tools import JavaTools, ToolResult
from peers.node import KafkaNode

from spindle.cli.tools import dump_records
from spindle.cli.tools.dump_remote_log import REMOTE_LOG_TYPES
from spindle.common.uuids import Uuid
from spindle.protocol.codec import encode
from spindle.protocol.message import Field, Message
from spindle.protocol.messages.coordinator_records import GroupMetadataValue
from spindle.protocol.messages.group_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from spindle.protocol.records.builder import SimpleRecord, build_batch

pytestmark = pytest.mark.timeout(180)
_KEY_PARTS = {"partition": (7).to_bytes(4, "big"), "topicId": bytes(range(16))}
_UNKNOWN = (99).to_bytes(2, "big")
_REASON = re.compile(r"(skipping\.).*")


def example(cls: type[Message], version: int, *, is_null: bool) -> Message:
    """Return a message whose fields differ from their defaults; nullable ones are null if asked."""
    values = {
        field.name: _example_of(field, version, is_null=is_null)
        for field in cls.FIELDS
        if field.first <= version <= field.last
    }
    return cls(**values)


def _example_of(field: Field, version: int, *, is_null: bool) -> Any:
    if is_null and field.nullable <= version:
        return None
    values = [_single(field, version, number, is_null=is_null) for number in (1, 2)]
    return values if field.is_array else values[0]


def _single(field: Field, version: int, number: int, *, is_null: bool) -> Any:
    kind = field.type
    if not isinstance(kind, str):
        return example(kind, version, is_null=is_null)
    if kind == "string":
        return f'{field.name} ä"\\\n{number}'
    if kind == "bytes":
        return bytes([0, 255, number])
    if kind == "uuid":
        return Uuid(bytes([number]) * 16)
    return bool(number) if kind == "bool" else number


def records_of(kinds: dict[int, Any]) -> Iterator[SimpleRecord]:
    """Yield records of all types, versions and forms, then broken ones."""
    for number, kind in kinds.items():
        key = number.to_bytes(2, "big")
        for name in kind.key_fields:
            text = f"the {name}".encode()
            key += _KEY_PARTS.get(name, len(text).to_bytes(2, "big") + text)
        for version in range(kind.value.FIRST_VERSION, kind.value.LAST_VERSION + 1):
            for is_null in (False, True):
                message = example(kind.value, version, is_null=is_null)
                yield SimpleRecord(key, encode(message, version, version.to_bytes(2, "big")))
                default = kind.value()
                yield SimpleRecord(key, encode(default, version, version.to_bytes(2, "big")))
        yield SimpleRecord(key, None)
        yield SimpleRecord(key, b"\x00\x63rest")
    yield SimpleRecord(_UNKNOWN, b"value")


def classic_groups() -> Iterator[SimpleRecord]:
    """Yield groups whose members have subscriptions and assignments of all versions."""
    key = (2).to_bytes(2, "big") + (1).to_bytes(2, "big") + b"g"
    member_of = GroupMetadataValue.MemberMetadata
    for version in range(GroupMetadataValue.FIRST_VERSION, GroupMetadataValue.LAST_VERSION + 1):
        members = [member_of(member_id="none"), member_of(member_id="odd", subscription=b"\x09x")]
        for number in range(ConsumerProtocolSubscription.LAST_VERSION + 1):
            data = [
                encode(example(cls, number, is_null=False), number, number.to_bytes(2, "big"))
                for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
            ]
            members.append(
                member_of(member_id=f"m{number}", subscription=data[0], assignment=data[1])
            )
        for protocol_type in ("consumer", "connect"):
            value = GroupMetadataValue(
                protocol_type=protocol_type, protocol="range", leader="m1", members=members
            )
            yield SimpleRecord(key, encode(value, version, version.to_bytes(2, "big")))


def lines_of(result: ToolResult) -> list[str]:
    """Return the lines without the reasons why a record cannot be decoded."""
    assert result.exit_code == 0, result.stderr
    return [_REASON.sub(r"\1", line) for line in result.lines]


def compare(java_tools: JavaTools, home: Path, files: Sequence[Path], *options: str) -> list[str]:
    words = ("--files", ",".join(map(str, files)), *options)
    theirs = lines_of(java_tools.run("dump-log", *words))
    ours = lines_of(run_script(home, "dump-log", *words))
    assert theirs == ours, difference(theirs, ours)
    return ours


@pytest.mark.parametrize(
    ("option", "kinds"),
    [
        ("--offsets-decoder", dump_records.GROUP_KINDS),
        ("--transaction-log-decoder", dump_records.TRANSACTION_KINDS),
        ("--share-group-state-decoder", dump_records.SHARE_KINDS),
    ],
)
@pytest.mark.parametrize("more", [(), ("--skip-record-metadata",)])
def test_every_type_and_version(
    java_tools: JavaTools,
    home: Path,
    tmp_path: Path,
    option: str,
    kinds: dict[int, Any],
    more: tuple[str, ...],
) -> None:
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(build_batch(list(records_of(kinds))))
    lines = compare(java_tools, home, [segment], option, *more)
    assert sum("<DELETE>" in line for line in lines) == len(kinds)


def framed_records(types: Mapping[int, type[Message]]) -> Iterator[SimpleRecord]:
    """Yield records of the frame of metadata, of all forms, then broken ones."""
    for number, cls in types.items():
        for is_null in (False, True):
            message = example(cls, 0, is_null=is_null)
            yield SimpleRecord(b"key", encode(message, 0, bytes((1, number, 0))))
        yield SimpleRecord(None, encode(cls(), 0, bytes((1, number, 0))))
        yield SimpleRecord(None, encode(cls(), 0, bytes((1, number, 0))) + b"more")
        yield SimpleRecord(None, bytes((1, number, 0)))
        yield SimpleRecord(None, bytes((1, number, 9)))
    for broken in (b"", b"\x00", b"\x01", b"\x01\x63\x00"):
        yield SimpleRecord(None, broken)


def test_records_of_remote_storage(java_tools: JavaTools, home: Path, tmp_path: Path) -> None:
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(build_batch(list(framed_records(REMOTE_LOG_TYPES))))
    lines = compare(java_tools, home, [segment], "--remote-log-metadata-decoder")
    assert sum("RemoteLogSegmentMetadata{" in line for line in lines) == 2


def test_metadata_records_that_cannot_be_read(
    java_tools: JavaTools, home: Path, tmp_path: Path
) -> None:
    segment = tmp_path / f"{0:020}.log"
    records = [record for record in framed_records({}) if record.value]
    segment.write_bytes(build_batch(records))
    compare(java_tools, home, [segment], "--cluster-metadata-decoder")


def test_members_of_classic_groups(java_tools: JavaTools, home: Path, tmp_path: Path) -> None:
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(build_batch(list(classic_groups())))
    compare(java_tools, home, [segment], "--offsets-decoder")


def test_files_of_a_node(java_tools: JavaTools, home: Path, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "kafka", directory_count=1) as node:
        where = {"bootstrap.servers": node.bootstrap, "log_level": 0}
        producer = Producer({**where, "transactional.id": "moves"})
        producer.init_transactions()
        for ends in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("t", b"value")
            producer.flush()
            ends()
        for protocol in ("classic", "consumer"):
            consumer = Consumer(
                {
                    **where,
                    "group.id": protocol,
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe(["t"])
            while consumer.poll(0.2) is None:
                pass
            consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
            consumer.close()
        node.stop()
        for topic, option in (
            ("__consumer_offsets", "--offsets-decoder"),
            ("__transaction_state", "--transaction-log-decoder"),
        ):
            segments = sorted(node.log_dirs[0].glob(f"{topic}-*/*.log"))
            lines = compare(java_tools, home, segments, option)
            assert any("payload: {" in line for line in lines)
