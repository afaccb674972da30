"""The requests that are sent to both Kafka and Spindle, by subject. `{v}` is the version."""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peers.compare import FIRST_TIMESTAMP_MS
from wire_exchange import Body, Case, State

from spindle.config.topic_keys import TOPIC_KEYS
from spindle.protocol.records.builder import SimpleRecord, build_batch

NO_ID = bytes(16)
OTHER_ID = bytes(range(1, 17))
SETTLE_S = 0.06
LONG_NAME = "n" * 250
ALL = None


def batch(*values: bytes | None, **options: Any) -> bytes:
    """Return records with keys and one second between their times."""
    return build_batch(
        [
            SimpleRecord(b"key", value, FIRST_TIMESTAMP_MS + 1000 * number)
            for number, value in enumerate(values)
        ],
        **options,
    )


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Body:
    configs = more.pop("configs", {})
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
        **more,
    }


def create(*topics: Body, validate_only: bool = False) -> Body:
    return {"topics": list(topics), "timeout_ms": 10_000, "validate_only": validate_only}


def produce(name: str, records: bytes | None, index: int = 0, acks: int = -1, **more: Any) -> Any:
    def body(state: State) -> Body:
        return {
            "acks": acks,
            "timeout_ms": 5_000,
            "topic_data": [
                {
                    "name": name,
                    "topic_id": state.topic_ids.get(name, OTHER_ID),
                    "partition_data": [{"index": index, "records": records}],
                }
            ],
            **more,
        }

    return body


TOPIC_CONFIG, BROKER_CONFIG, LOGGER, METRICS_CONFIG, GROUP_CONFIG = 2, 4, 8, 16, 32


SETUP = [
    Case(
        "topics",
        "create_topics",
        create(
            topic("audit-two", 2),
            topic("audit-data"),
            topic("audit-small", configs={"max.message.bytes": "200"}),
            topic("audit-compact", configs={"cleanup.policy": "compact"}),
            topic("audit-logtime", configs={"message.timestamp.type": "LogAppendTime"}),
            topic("audit-deleterecords"),
            topic("audit-offsets", 3),
            topic("audit-config", configs={"retention.ms": "123456", "segment.bytes": "2000000"}),
        ),
        range(7, 8),
    ),
    Case("data", "produce", produce("audit-data", batch(b"0", b"1", b"2")), range(12, 13),
         patient=True),
    Case("more data", "produce", produce("audit-data", batch(b"3", b"4")), range(12, 13)),
    Case(
        "data to delete",
        "produce",
        produce("audit-deleterecords", batch(*([b"x"] * 20))),
        range(12, 13),
        patient=True,
    ),
    Case("producer id", "init_producer_id", {"transactional_id": None}, range(4, 5), patient=True),
    Case("group coordinator", "find_coordinator", {"key": "g", "key_type": 0}, range(1, 2),
         patient=True),
    Case("transaction coordinator", "find_coordinator", {"key": "t", "key_type": 1}, range(1, 2),
         patient=True),
    # Groups and transactional ids of all partitions, so that each shard is loaded.
    *(Case(f"transactions {i}", "end_txn", {"transactional_id": f"t{i}"}, range(1, 2), patient=True)
      for i in range(10)),
    *(Case(f"group {i}", "describe_groups", {"groups": [f"g{i}"]}, range(5, 6), patient=True)
      for i in range(20)),
]  # fmt: skip


def expecting(cluster_id: str | None, node_id: int) -> Any:
    return lambda state: {
        "client_software_name": "a",
        "client_software_version": "1",
        "cluster_id": state.node.cluster_id if cluster_id == "own" else cluster_id,
        "node_id": node_id,
    }


API_VERSIONS = [
    Case("names", "api_versions", {"client_software_name": "a", "client_software_version": "1"}),
    Case("empty names", "api_versions", {}, range(3, 5)),
    Case(
        "name that is not allowed",
        "api_versions",
        {"client_software_name": "-a-", "client_software_version": "1"},
        range(3, 5),
    ),
    Case(
        "version that is not allowed",
        "api_versions",
        {"client_software_name": "a", "client_software_version": "1 2"},
        range(3, 5),
    ),
    *(
        Case(
            f"cluster {cluster_id} node {node_id}",
            "api_versions",
            expecting(cluster_id, node_id),
            range(5, 6),
        )
        for cluster_id, node_id in (
            ("own", 1),
            ("own", 2),
            ("own", -1),
            ("other", 1),
            ("", 1),
            (None, 1),
        )
    ),
]


def topics_named(*names: str | None, **more: Any) -> Body:
    return {"topics": [{"name": name} for name in names], **more}


def topics_by_id(*names: str) -> Any:
    return lambda state: {
        "topics": [
            {"name": None, "topic_id": state.topic_ids.get(name, OTHER_ID)} for name in names
        ]
    }


NO_AUTO = {"allow_auto_topic_creation": False}
METADATA = [  # The flag against creation exists from version 4 on.
    Case("all by null", "metadata", {"topics": None, **NO_AUTO}),
    Case("all by empty", "metadata", {"topics": [], **NO_AUTO}),
    Case("one", "metadata", topics_named("audit-two", **NO_AUTO)),
    Case(
        "auto creation by an old client",
        "metadata",
        topics_named("audit-old-{v}"),
        range(4),
        settle_s=0.2,
    ),
    Case("same twice", "metadata", topics_named("audit-two", "audit-two", **NO_AUTO)),
    Case("unknown", "metadata", topics_named("audit-none", "audit-two", **NO_AUTO), range(4, 14)),
    Case("bad names", "metadata", topics_named("", ".", "..", "a b", LONG_NAME, **NO_AUTO)),
    Case("bad names, creating", "metadata", topics_named("", ".", "a b", LONG_NAME)),
    Case("auto creation", "metadata", topics_named("audit-auto-{v}"), settle_s=SETTLE_S),
    Case(
        "internal, not created",
        "metadata",
        topics_named("__transaction_state", **NO_AUTO),
        range(4, 14),
    ),
    Case("null name and no id", "metadata", topics_named(None, **NO_AUTO)),
    Case("by id", "metadata", topics_by_id("audit-two")),
    Case("by unknown id", "metadata", topics_by_id("audit-none", "audit-two")),
    Case(
        "name and id",
        "metadata",
        lambda s: {"topics": [{"name": "audit-two", "topic_id": s.topic_ids["audit-two"]}]},
    ),
    Case(
        "operations",
        "metadata",
        topics_named(
            "audit-two",
            "audit-none",
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
            **NO_AUTO,
        ),
        range(4, 14),
    ),
]

CLUSTER = [
    *(
        Case(f"type {kind}, operations {flag}", "describe_cluster",
             {"endpoint_type": kind, "include_cluster_authorized_operations": flag,
              "include_fenced_brokers": flag})
        for kind in (1, 2, 3, 0)
        for flag in (False, True)
    ),
    Case("metadata", "describe_quorum",
         {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
    Case("other partition", "describe_quorum",
         {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 1}]}]}),
    Case("other topic", "describe_quorum",
         {"topics": [{"topic_name": "audit-two", "partitions": [{"partition_index": 0}]}]}),
    Case("nothing", "describe_quorum", {"topics": []}),
    Case("nothing", "update_features", {"timeout_ms": 5000, "validate_only": True}),
    *(
        Case(f"{feature} to {level} type {kind}", "update_features",
             {"timeout_ms": 5000, "validate_only": True,
              "feature_updates": [{"feature": feature, "max_version_level": level,
                                   "upgrade_type": kind, "allow_downgrade": kind > 1}]})
        for feature, level, kind in (
            ("metadata.version", 30, 1), ("metadata.version", 99, 1), ("metadata.version", 7, 2),
            ("metadata.version", 0, 2), ("metadata.version", 25, 1), ("metadata.version", 25, 2),
            ("metadata.version", 25, 3), ("no.such", 1, 1), ("no.such", 0, 2), ("", 1, 1),
            ("group.version", 0, 2), ("group.version", 0, 3), ("group.version", 1, 1),
            ("group.version", 5, 1), ("group.version", -1, 1), ("transaction.version", 1, 2),
            ("share.version", 1, 1), ("streams.version", 1, 1), ("kraft.version", 0, 2),
            ("kraft.version", 1, 1), ("kraft.version", 2, 1), ("eligible.leader.replicas.version", 1, 1),
            ("group.version", 1, 0), ("group.version", 1, 4),
        )
    ),
    Case("unknown broker", "unregister_broker", {"broker_id": 99}),
    *(
        Case(f"controller {number}", "unregister_controller", {"controller_id": number})
        for number in (99, -1, 1)
    ),
    Case("add voter, other cluster", "add_raft_voter",
         {"cluster_id": "other", "timeout_ms": 1000, "voter_id": 2, "voter_directory_id": OTHER_ID,
          "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}]}),
    Case("add voter", "add_raft_voter",
         {"cluster_id": None, "timeout_ms": 1000, "voter_id": 2, "voter_directory_id": OTHER_ID,
          "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}]}),
    Case("remove voter", "remove_raft_voter",
         {"cluster_id": None, "voter_id": 2, "voter_directory_id": OTHER_ID}),
]  # fmt: skip

CREATE_TOPICS = [
    Case("plain", "create_topics", create(topic("audit-ct-{v}", 3)), settle_s=SETTLE_S),
    Case("exists", "create_topics", create(topic("audit-ct-{v}"))),
    Case("defaults", "create_topics", create(topic("audit-ctd-{v}", -1, -1))),
    Case("only validated", "create_topics",
         create(topic("audit-ctv-{v}", 2, configs={"retention.ms": "5"}), validate_only=True)),
    Case("nothing", "create_topics", create()),
    Case("twice", "create_topics", create(topic("audit-tw-{v}"), topic("audit-tw-{v}"),
                                          topic("audit-tw-ok-{v}"))),
    Case("counts", "create_topics",
         create(topic("a", 0), topic("b", -2), topic("c", 1, 0), topic("d", 1, 2), topic("e", 1, -2),
                topic("f", 2_000_000_000), topic("g", 1, 32767))),
    Case("names", "create_topics",
         create(topic(""), topic("."), topic(".."), topic("a b"), topic("ü"), topic(LONG_NAME),
                topic("a/b"))),
    Case("internal", "create_topics",
         create(topic("__cluster_metadata"), topic("__share_group_state"), validate_only=True)),
    Case("collision", "create_topics", create(topic("audit.two"), topic("audit_two"))),
    Case("assignments", "create_topics",
         create(
             topic("audit-as-{v}", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1]},
                                                        {"partition_index": 1, "broker_ids": [1]}]),
             *(topic(f"as{number}", -1, -1, assignments=assignments)
               for number, assignments in enumerate([
                   [{"partition_index": 1, "broker_ids": [1]}],
                   [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 0, "broker_ids": [1]}],
                   [{"partition_index": 0, "broker_ids": [1, 1]}],
                   [{"partition_index": 0, "broker_ids": [2]}],
                   [{"partition_index": 0, "broker_ids": []}],
                   [{"partition_index": 0, "broker_ids": [1, 2]}],
                   [{"partition_index": 0, "broker_ids": [-1]}],
                   [{"partition_index": -1, "broker_ids": [1]}],
                   [{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 1, "broker_ids": [1, 2]}],
               ])),
             topic("as-count", 1, -1, assignments=[{"partition_index": 0, "broker_ids": [1]}]),
             topic("as-factor", -1, 1, assignments=[{"partition_index": 0, "broker_ids": [1]}]),
         )),
    Case("configs", "create_topics",
         create(topic("c1", configs={"retention.ms": "x"}), topic("c2", configs={"no.such": "1"}),
                topic("c3", configs={"retention.ms": None}), topic("c4", configs={"": "1"}),
                topic("c5", configs={"retention.ms": "10", "cleanup.policy": "compact,delete"}),
                topic("c6", configs={"segment.bytes": "1"}), topic("c7", configs={"min.insync.replicas": "2"}),
                topic("c8", configs={"follower.replication.throttled.replicas": "*"}),
                topic("c9", configs={"remote.storage.enable": "true"}),
                validate_only=True)),
    Case("same config twice", "create_topics",
         create({**topic("audit-c2-{v}"), "configs": [{"name": "retention.ms", "value": "1"},
                                                      {"name": "retention.ms", "value": "2"}]},
                validate_only=True)),
]  # fmt: skip

DELETE_TOPICS = [
    Case("by name", "delete_topics",
         {"timeout_ms": 5000, "topic_names": ["audit-ct-{v}", "audit-none"],
          "topics": [{"name": "audit-ct-{v}"}, {"name": "audit-none"}]}, settle_s=SETTLE_S),
    Case("again", "delete_topics",
         {"timeout_ms": 5000, "topic_names": ["audit-ct-{v}"], "topics": [{"name": "audit-ct-{v}"}]}),
    Case("nothing", "delete_topics", {"timeout_ms": 5000}),
    Case("twice", "delete_topics",
         {"timeout_ms": 5000, "topic_names": ["audit-ctd-{v}"] * 2,
          "topics": [{"name": "audit-ctd-{v}"}] * 2}),
    Case("bad names", "delete_topics",
         {"timeout_ms": 5000, "topic_names": ["", "a b"], "topics": [{"name": ""}, {"name": "a b"}]}),
    Case("unknown id", "delete_topics",
         {"timeout_ms": 5000, "topics": [{"name": None, "topic_id": OTHER_ID}]}, range(6, 7)),
    Case("no id", "delete_topics", {"timeout_ms": 5000, "topics": [{"name": None}]}, range(6, 7)),
    Case("name and id", "delete_topics",
         {"timeout_ms": 5000, "topics": [{"name": "audit-none", "topic_id": OTHER_ID}]}, range(6, 7)),
    Case("id twice", "delete_topics",
         {"timeout_ms": 5000, "topics": [{"name": None, "topic_id": OTHER_ID}] * 2}, range(6, 7)),
    Case("name and its id", "delete_topics", lambda s: {"timeout_ms": 5000, "topics": [
        {"name": "audit-ctd-7"}, {"name": None, "topic_id": s.topic_ids.get("audit-ctd-7", NO_ID)}]},
         range(6, 7)),
]  # fmt: skip


def partitions(*topics: tuple[str, int, list[list[int]] | None], validate: bool = False) -> Body:
    return {
        "timeout_ms": 5000,
        "validate_only": validate,
        "topics": [
            {
                "name": name,
                "count": count,
                "assignments": None
                if assigned is None
                else [{"broker_ids": brokers} for brokers in assigned],
            }
            for name, count, assigned in topics
        ],
    }


PARTITIONS = [
    Case("topics", "create_topics", create(topic("audit-p0"), topic("audit-p1"), topic("audit-p2"),
         topic("audit-p3")), range(7, 8), settle_s=0.3),
    Case("one more", "create_partitions", partitions(("audit-p{v}", 2, None)), settle_s=SETTLE_S),
    Case("assigned", "create_partitions", partitions(("audit-p{v}", 4, [[1], [1]])), settle_s=SETTLE_S),
    Case("same", "create_partitions", partitions(("audit-two", 2, None))),
    Case("fewer", "create_partitions", partitions(("audit-two", 1, None), ("audit-offsets", 0, None))),
    Case("negative", "create_partitions", partitions(("audit-two", -1, None))),
    Case("unknown", "create_partitions", partitions(("audit-none", 2, None), ("", 2, None))),
    Case("twice", "create_partitions", partitions(("audit-two", 3, None), ("audit-two", 4, None))),
    Case("validated", "create_partitions", partitions(("audit-two", 5, None), validate=True)),
    Case("too many", "create_partitions", partitions(("audit-two", 11_000, None), validate=True)),
    *(
        Case(f"bad assignment {assigned}", "create_partitions",
             partitions(("audit-two", 4, assigned), validate=True))
        for assigned in ([], [[1]], [[1], [1], [1]], [[1], []], [[1], [2]], [[1, 1], [1]], [[1, 2], [1]],
                         [[-1], [1]])
    ),
    Case("nothing", "create_partitions", partitions()),
    *(
        Case(f"type {kind} {parts}", "elect_leaders",
             {"election_type": kind, "timeout_ms": 2000, "topic_partitions": parts})
        for kind in (0, 1, 2)
        for parts in (
            None, [], [{"topic": "audit-two", "partitions": [0, 1]}],
            [{"topic": "audit-two", "partitions": [7, 0]}], [{"topic": "audit-none", "partitions": [0]}],
            [{"topic": "audit-two", "partitions": [0, 0]}], [{"topic": "audit-two", "partitions": []}],
        )
    ),
    *(
        Case(f"{index}", "alter_partition_reassignments",
             {"timeout_ms": 2000, "allow_replication_factor_change": True, "topics": topics})
        for index, topics in enumerate((
            [],
            [{"name": "audit-none", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 9, "replicas": [1]}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": [2]}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": [1, 1]}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": []}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": [-1]}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": None}]}],
            [{"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": None},
                                                  {"partition_index": 0, "replicas": [1]}]}],
            [{"name": "audit-two", "partitions": []}],
            [{"name": "", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
        ))
    ),
    Case("factor change not allowed", "alter_partition_reassignments",
         {"timeout_ms": 2000, "allow_replication_factor_change": False, "topics": [
             {"name": "audit-two", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}]}),
    Case("all", "list_partition_reassignments", {"timeout_ms": 2000, "topics": None}),
    Case("none", "list_partition_reassignments", {"timeout_ms": 2000, "topics": []}),
    Case("some", "list_partition_reassignments", {"timeout_ms": 2000, "topics": [
        {"name": "audit-two", "partition_indexes": [0, 9]}, {"name": "audit-none", "partition_indexes": [0]}]}),
]  # fmt: skip


def paged(names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> Body:
    return {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None
        if cursor is None
        else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }


TWO = ["audit-two", "audit-offsets", "audit-data"]
DESCRIBE_TOPICS = [
    Case(f"{index}", "describe_topic_partitions", body)
    for index, body in enumerate((
        paged([], 2000), paged(TWO, 2000), paged(TWO, 2), paged(TWO, 1), paged(TWO, 0), paged(TWO, -1),
        paged(TWO, 3, ("audit-offsets", 1)), paged(TWO, 3, ("audit-offsets", 2)),
        paged(TWO, 3, ("audit-offsets", 3)), paged(TWO, 3, ("audit-offsets", -1)),
        paged(TWO, 3, ("audit-e", 5)), paged(TWO, 3, ("zzz", 0)), paged([], 2, ("audit-two", 0)),
        paged(["audit-none", "audit-two"], 5), paged(["", "a b", LONG_NAME], 5),
        paged(["audit-two", "audit-two"], 5), paged(TWO, 3, ("", 0)), paged(TWO, 5000),
        paged(["audit-none", "audit-z-none"], 1), paged(TWO, 3, ("audit-two", 1)),
        paged(TWO, 3, ("audit-two", 7)),
    ))
]  # fmt: skip

GOOD = batch(b"v")
SEQUENCED = {"producer_id": 4000, "producer_epoch": 0}
PRODUCE = [
    Case("plain", "produce", produce("audit-two", GOOD)),
    Case("acks 1", "produce", produce("audit-two", GOOD, acks=1)),
    Case("acks 2", "produce", produce("audit-two", GOOD, acks=2)),
    Case("acks -2", "produce", produce("audit-two", GOOD, acks=-2)),
    Case("unknown partition", "produce", produce("audit-two", GOOD, 9)),
    Case("negative partition", "produce", produce("audit-two", GOOD, -1)),
    Case("unknown topic", "produce", produce("audit-none", GOOD)),
    Case("bad name", "produce", produce("a b", GOOD), range(3, 13)),
    Case("internal topic", "produce", produce("__consumer_offsets", GOOD)),
    Case("nothing", "produce", {"acks": -1, "timeout_ms": 5000}),
    Case("no partition", "produce",
         lambda s: {"acks": -1, "timeout_ms": 1, "topic_data": [
             {"name": "audit-two", "topic_id": s.topic_ids["audit-two"]}]}),
    Case("no records", "produce", produce("audit-two", b"")),
    Case("two batches", "produce", produce("audit-two", GOOD + GOOD)),
    Case("bad crc", "produce", produce("audit-two", GOOD[:-1] + b"\x7f")),
    Case("cut off", "produce", produce("audit-two", GOOD[:-1])),
    Case("header only", "produce", produce("audit-two", GOOD[:40])),
    Case("too large", "produce", produce("audit-small", batch(b"x" * 300))),
    Case("no key in a compacted topic", "produce",
         produce("audit-compact", build_batch([SimpleRecord(None, b"v", FIRST_TIMESTAMP_MS)]))),
    Case("some without key", "produce",
         produce("audit-compact", build_batch([SimpleRecord(b"k", b"v", FIRST_TIMESTAMP_MS),
                                               SimpleRecord(None, b"v", FIRST_TIMESTAMP_MS)]))),
    Case("log append time", "produce", produce("audit-logtime", GOOD)),
    Case("far future", "produce",
         produce("audit-two", build_batch([SimpleRecord(b"k", b"v", 4_000_000_000_000)]))),
    Case("no timestamp", "produce", produce("audit-two", build_batch([SimpleRecord(b"k", b"v")]))),
    Case("sequence that starts late", "produce",
         produce("audit-two", batch(b"v", base_sequence=5, **SEQUENCED), 1), range(9, 10)),
    Case("sequence", "produce",
         produce("audit-two", batch(b"v", base_sequence=6, **SEQUENCED), 1), range(9, 10)),
    Case("sequence again", "produce",
         produce("audit-two", batch(b"v", base_sequence=6, **SEQUENCED), 1)),
    Case("sequence gap", "produce",
         produce("audit-two", batch(b"v", base_sequence=9, **SEQUENCED), 1)),
    Case("sequence of long ago", "produce",
         produce("audit-two", batch(b"v", base_sequence=1, **SEQUENCED), 1)),
    Case("newer producer epoch, not from zero", "produce",
         produce("audit-two", batch(b"v", producer_id=4000, producer_epoch=1, base_sequence=3), 1)),
    Case("newer producer epoch", "produce",
         produce("audit-two", batch(b"v", producer_id=4000, producer_epoch=1, base_sequence=0), 1),
         range(9, 10)),
    Case("older producer epoch", "produce",
         produce("audit-two", batch(b"v", base_sequence=7, **SEQUENCED), 1)),
    Case("two batches with sequence", "produce",
         produce("audit-two", batch(b"v", base_sequence=1, producer_id=4000, producer_epoch=1) * 2, 1)),
    Case("control batch", "produce", produce("audit-two", batch(b"v", is_control=True))),
    Case("transactional batch", "produce",
         produce("audit-two", batch(b"v", is_transactional=True, base_sequence=0, **SEQUENCED), 1)),
    Case("zstd", "produce", produce("audit-two", batch(b"v", codec=4))),
    Case("codec 5", "produce", produce("audit-two", GOOD[:22] + b"\x05" + GOOD[23:])),
    Case("magic 1", "produce", produce("audit-two", GOOD[:16] + b"\x01" + GOOD[17:])),
    Case("magic 3", "produce", produce("audit-two", GOOD[:16] + b"\x03" + GOOD[17:])),
]  # fmt: skip


def fetch(name: str, offset: int = 0, partition: int = 0, **more: Any) -> Any:
    """Return a fetch of one partition without a session; `more` changes the request, `part` the
    partition."""
    part = more.pop("part", {})

    def body(state: State) -> Body:
        return {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": name,
                    "topic_id": state.topic_ids.get(name, OTHER_ID),
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": offset,
                            "partition_max_bytes": 1 << 20,
                            **part,
                        }
                    ],
                }
            ],
            **more,
        }

    return body


def keep_session(state: State, answer: Any) -> None:
    state.kept["session"] = getattr(answer, "session_id", 0)


def in_session(epoch: int, name: str = "audit-data", offset: int = 0) -> Any:
    plain = fetch(name, offset, session_epoch=epoch)
    return lambda state: {**plain(state), "session_id": state.kept.get("session", 0)}


FETCH = [
    Case("from the start", "fetch", fetch("audit-data")),
    Case("inside a batch", "fetch", fetch("audit-data", 1)),
    Case("second batch", "fetch", fetch("audit-data", 3)),
    Case("at the end", "fetch", fetch("audit-data", 5)),
    Case("behind the end", "fetch", fetch("audit-data", 6)),
    Case("negative", "fetch", fetch("audit-data", -1)),
    Case("committed", "fetch", fetch("audit-data", isolation_level=1)),
    Case("isolation 2", "fetch", fetch("audit-data", isolation_level=2)),
    Case("unknown partition", "fetch", fetch("audit-data", 0, 7)),
    Case("unknown topic", "fetch", fetch("audit-none")),
    Case("small", "fetch", fetch("audit-data", part={"partition_max_bytes": 1})),
    Case("nothing of it", "fetch", fetch("audit-data", part={"partition_max_bytes": 0})),
    Case("small in total", "fetch", fetch("audit-data", max_bytes=1)),
    Case("no bytes in total", "fetch", fetch("audit-data", max_bytes=0)),
    Case("epoch 0", "fetch", fetch("audit-data", part={"current_leader_epoch": 0})),
    Case("epoch 5", "fetch", fetch("audit-data", part={"current_leader_epoch": 5})),
    Case("last epoch", "fetch", fetch("audit-data", 5, part={"last_fetched_epoch": 3})),
    Case("no topics", "fetch", {"max_wait_ms": 0, "session_epoch": -1, "topics": []}),
    Case("from a follower", "fetch", fetch("audit-data", replica_id=7, replica_state={"replica_id": 7})),
    Case("first of a session", "fetch", in_session(0), keep=keep_session),
    Case("wrong epoch", "fetch", in_session(9)),
    Case("unknown session", "fetch",
         lambda s: {**fetch("audit-data", session_epoch=1)(s), "session_id": 77}),
    Case("session epoch -2", "fetch", in_session(-2)),
    Case("session of ids by name", "fetch", in_session(1), range(12, 13)),
    Case("the same by id", "fetch", in_session(1), range(13, 14)),
    Case("no partition left", "fetch", lambda s: {
        **in_session(2)(s), "topics": [],
        "forgotten_topics_data": [{"topic_id": s.topic_ids["audit-data"], "partitions": [0]}]},
        range(13, 14)),
    Case("after the last partition", "fetch", in_session(3), range(13, 14)),
    Case("same partition twice", "fetch", lambda s: {
        "max_wait_ms": 0, "max_bytes": 1 << 20, "session_epoch": -1,
        "topics": fetch("audit-data")(s)["topics"] + fetch("audit-data", 3)(s)["topics"]}),
]  # fmt: skip


def list_offsets(name: str, timestamp: int, partition: int = 0, **more: Any) -> Body:
    return {
        "replica_id": more.pop("replica_id", -1),
        "isolation_level": more.pop("isolation_level", 0),
        "timeout_ms": 2000,
        "topics": [
            {"name": name, "partitions": [{"partition_index": partition, "timestamp": timestamp,
                                           "current_leader_epoch": -1, **more}]}
        ],
    }  # fmt: skip


def for_epoch(
    name: str, epoch: int, current: int = -1, partition: int = 0, replica: int = -1
) -> Body:
    return {
        "replica_id": replica,
        "topics": [{"topic": name, "partitions": [
            {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}]}],
    }  # fmt: skip


OFFSETS = [
    *(
        Case(f"timestamp {label}", "list_offsets", list_offsets("audit-data", timestamp))
        for label, timestamp in (
            ("0", 0), ("latest", -1), ("earliest", -2), ("max", -3), ("earliest local", -4), ("tiered", -5),
            ("earliest pending upload", -6), ("-7", -7), ("first", FIRST_TIMESTAMP_MS),
            ("second", FIRST_TIMESTAMP_MS + 1000), ("between", FIRST_TIMESTAMP_MS + 1500),
            ("future", FIRST_TIMESTAMP_MS + 10**9),
        )
    ),
    *(
        Case(f"empty partition, timestamp {timestamp}", "list_offsets", list_offsets("audit-offsets", timestamp))
        for timestamp in (0, -1, -2, -3, -4, -5, -6)
    ),
    Case("committed", "list_offsets", list_offsets("audit-data", -1, isolation_level=1)),
    Case("isolation 2", "list_offsets", list_offsets("audit-data", -1, isolation_level=2)),
    Case("unknown topic", "list_offsets", list_offsets("audit-none", -1)),
    Case("unknown partition", "list_offsets", list_offsets("audit-data", -1, 7)),
    Case("negative partition", "list_offsets", list_offsets("audit-data", -1, -7)),
    Case("epoch 0", "list_offsets", list_offsets("audit-data", -1, current_leader_epoch=0)),
    Case("epoch 9", "list_offsets", list_offsets("audit-data", -1, current_leader_epoch=9)),
    Case("follower", "list_offsets", list_offsets("audit-data", -1, replica_id=7)),
    Case("debugging", "list_offsets", list_offsets("audit-data", -1, replica_id=-2)),
    Case("partition twice", "list_offsets", {"replica_id": -1, "topics": [{"name": "audit-data",
         "partitions": [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]}]}),
    Case("nothing", "list_offsets", {"replica_id": -1, "topics": []}),
    *(
        Case(f"{index}", "offset_for_leader_epoch", body)
        for index, body in enumerate((
            for_epoch("audit-data", 0), for_epoch("audit-data", 5), for_epoch("audit-data", -1),
            for_epoch("audit-data", 0, 0), for_epoch("audit-data", 0, 9), for_epoch("audit-none", 0),
            for_epoch("audit-data", 0, -1, 9), for_epoch("audit-data", 0, replica=7),
            for_epoch("audit-data", 0, replica=-2), for_epoch("audit-offsets", 0), {"topics": []},
        ))
    ),
    *(
        Case(f"before {offset}", "delete_records", {"timeout_ms": 2000, "topics": [
            {"name": "audit-deleterecords", "partitions": [{"partition_index": 0, "offset": offset}]}]})
        for offset in (0, 5, 3, 21, -2, 20, -1)
    ),
    *(
        Case(f"{name} {index}", "delete_records", {"timeout_ms": 2000, "topics": [
            {"name": name, "partitions": [{"partition_index": index, "offset": 0}]}]})
        for name, index in (("audit-none", 0), ("audit-data", 7), ("audit-compact", 0),
                            ("__consumer_offsets", 0), ("__cluster_metadata", 0), ("", 0))
    ),
    Case("nothing", "delete_records", {"timeout_ms": 2000, "topics": []}),
    Case("same twice", "delete_records", {"timeout_ms": 2000, "topics": [
        {"name": "audit-deleterecords", "partitions": [{"partition_index": 0, "offset": 20}] * 2}]}),
    *(
        Case(f"producers {name} {indexes}", "describe_producers",
             {"topics": [{"name": name, "partition_indexes": indexes}]})
        for name, indexes in (("audit-data", [0]), ("audit-data", [7]), ("audit-none", [0]), ("audit-data", []),
                              ("", [0]))
    ),
    *(
        Case(f"{label}", "init_producer_id", {"transactional_id": None, "transaction_timeout_ms": 1000, **body})
        for label, body in (
            ("new", {}), ("again", {}), ("no timeout", {"transaction_timeout_ms": -1}),
            ("with id", {"producer_id": 5, "producer_epoch": 3}), ("id only", {"producer_id": 5}),
            ("epoch only", {"producer_epoch": 3}), ("empty transactional id", {"transactional_id": ""}),
        )
    ),
]  # fmt: skip


def commit(group: str, name: str, *rows: tuple[int, int, str | None], **more: Any) -> Any:
    def body(state: State) -> Body:
        return {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                {
                    "name": name,
                    "topic_id": state.topic_ids.get(name, OTHER_ID),
                    "partitions": [
                        {"partition_index": index, "committed_offset": offset,
                         "committed_metadata": text}
                        for index, offset, text in rows
                    ],
                }
            ],
            **more,
        }  # fmt: skip

    return body


def fetch_offsets(group: str, name: str | None, *indexes: int, **more: Any) -> Any:
    def body(state: State) -> Body:
        topics = None if name is None else [
            {"name": name, "topic_id": state.topic_ids.get(name, OTHER_ID),
             "partition_indexes": list(indexes)}
        ]  # fmt: skip
        old = None if topics is None else [{"name": name, "partition_indexes": list(indexes)}]
        return {
            "group_id": group,
            "topics": old,
            "groups": [{"group_id": group, "topics": topics, **more}],
        }

    return body


GROUP_OFFSETS = [
    *(
        Case(f"{key!r} type {kind}", "find_coordinator",
             {"key": key, "key_type": kind, "coordinator_keys": [key]})
        for key, kind in (("audit", 0), ("", 0), ("audit", 5), ("audit", -1), ("bad key", 2))
    ),
    Case("several", "find_coordinator", {"key_type": 0, "coordinator_keys": ["a", "b", "a"]}, range(4, 7)),
    Case("none", "find_coordinator", {"key_type": 0, "coordinator_keys": []}, range(4, 7)),
    Case("plain", "offset_commit", commit("audit-g{v}", "audit-offsets", (0, 10, "text"), (1, 20, ""), (2, 30, None))),
    Case("unknown partition", "offset_commit", commit("audit-g{v}", "audit-offsets", (7, 1, ""), (0, 11, "b"))),
    Case("unknown topic", "offset_commit", commit("audit-g{v}", "audit-none", (0, 1, ""))),
    Case("negative partition", "offset_commit", commit("audit-g{v}", "audit-offsets", (-1, 1, ""))),
    Case("negative offset", "offset_commit", commit("audit-g{v}", "audit-offsets", (1, -5, ""))),
    Case("large text", "offset_commit", commit("audit-g{v}", "audit-offsets", (1, 5, "x" * 5000), (2, 31, "z"))),
    Case("empty group", "offset_commit", commit("", "audit-offsets", (0, 1, ""))),
    Case("nothing", "offset_commit", {"group_id": "audit-g{v}", "generation_id_or_member_epoch": -1, "topics": []}),
    Case("no partition", "offset_commit", commit("audit-g{v}", "audit-offsets")),
    Case("unknown member", "offset_commit",
         commit("audit-g{v}", "audit-offsets", (0, 1, ""), member_id="who", generation_id_or_member_epoch=3)),
    Case("unknown group with a generation", "offset_commit",
         commit("audit-new", "audit-offsets", (0, 1, ""), generation_id_or_member_epoch=3)),
    Case("unknown static member", "offset_commit",
         commit("audit-g{v}", "audit-offsets", (0, 1, ""), group_instance_id="i")),
    Case("same partition twice", "offset_commit", commit("audit-g2t", "audit-offsets", (0, 1, "a"), (0, 2, "b"))),
    *(
        Case(f"{group} {name} {indexes}", "offset_fetch", fetch_offsets(group, name, *indexes))
        for group, name, indexes in (
            ("audit-g8", "audit-offsets", (0, 1, 2)), ("audit-g8", "audit-offsets", (2, 7, -1)),
            ("audit-g8", "audit-none", (0,)), ("audit-g8", "audit-offsets", ()), ("audit-g8", None, ()),
            ("audit-nobody", "audit-offsets", (0,)), ("audit-nobody", None, ()), ("", "audit-offsets", (0,)),
            ("audit-g2t", None, ()),
        )
    ),
    Case("stable", "offset_fetch",
         lambda s: {**fetch_offsets("audit-g8", None)(s), "require_stable": True}),
    Case("with a member", "offset_fetch",
         fetch_offsets("audit-g8", "audit-offsets", 0, member_id="m", member_epoch=4)),
    Case("no groups", "offset_fetch", {"groups": []}, range(8, 11)),
    Case("no topics", "offset_fetch", {"group_id": "audit-g8", "topics": [],
                                       "groups": [{"group_id": "audit-g8", "topics": []}]}),
    *(
        Case(f"{group} {name} {index}", "offset_delete",
             {"group_id": group, "topics": [{"name": name, "partitions": [{"partition_index": index}]}]})
        for group, name, index in (
            ("audit-g2", "audit-offsets", 0), ("audit-g2", "audit-offsets", 0), ("audit-g2", "audit-offsets", 9),
            ("audit-g2", "audit-none", 0), ("audit-nobody", "audit-offsets", 0), ("", "audit-offsets", 0),
        )
    ),
    Case("nothing", "offset_delete", {"group_id": "audit-g2", "topics": []}),
]  # fmt: skip


def join(group: str, member: str = "", **more: Any) -> Body:
    return {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 1_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [
            {"name": "range", "metadata": b"m"},
            {"name": "roundrobin", "metadata": b"n"},
        ],
        **more,
    }


def keep_member(state: State, answer: Any) -> None:
    if getattr(answer, "member_id", ""):
        state.kept["member"] = answer.member_id
        state.kept["generation"] = answer.generation_id


def as_member(**body: Any) -> Any:
    """Return a request of the member that joined last."""
    return lambda state: {
        "member_id": state.kept.get("member", "none"),
        "generation_id": state.kept.get("generation", -1),
        **body,
    }


def rejoin(group: str) -> Any:
    return lambda state: join(group, state.kept.get("member", "none"))


def sync(**more: Any) -> Any:
    def body(state: State) -> Body:
        member = state.kept.get("member", "none")
        return {
            "group_id": "audit-members",
            "generation_id": state.kept.get("generation", -1),
            "member_id": member,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member, "assignment": b"a"}],
            **more,
        }

    return body


def one(version: int) -> range:
    return range(version, version + 1)


MEMBERS = [
    Case("empty group", "join_group", join("")),
    Case("unknown member", "join_group", join("audit-x", "who")),
    Case("short session", "join_group", join("audit-x", session_timeout_ms=1)),
    Case("long session", "join_group", join("audit-x", session_timeout_ms=100_000_000)),
    Case("no protocols", "join_group", join("audit-x", protocols=[])),
    Case("no protocol type", "join_group", join("audit-x", protocol_type="")),
    Case("bad instance", "join_group", join("audit-bad{v}", group_instance_id="a b")),
    Case("needs an id", "join_group", join("audit-members"), range(4, 10), keep=keep_member),
    Case("joins", "join_group", rejoin("audit-members"), one(9), keep=keep_member),
    Case("early heartbeat", "heartbeat", as_member(group_id="audit-members")),
    Case("described while it joins", "describe_groups", {"groups": ["audit-members"]}),
    Case("other protocol type", "join_group", join("audit-members", protocol_type="other")),
    Case("other protocols", "join_group", join("audit-members", protocols=[{"name": "x", "metadata": b""}])),
    Case("wrong generation", "sync_group", sync(generation_id=77)),
    Case("wrong member", "sync_group", sync(member_id="who")),
    Case("wrong group", "sync_group", sync(group_id="audit-nobody")),
    Case("empty group", "sync_group", sync(group_id="")),
    Case("wrong protocol", "sync_group", sync(protocol_name="x")),
    Case("wrong protocol type", "sync_group", sync(protocol_type="x")),
    Case("no protocol", "sync_group", sync(protocol_name=None, protocol_type=None)),
    Case("wrong instance", "sync_group", sync(group_instance_id="x")),
    Case("right", "sync_group", sync()),
    Case("right", "heartbeat", as_member(group_id="audit-members")),
    Case("wrong generation", "heartbeat", lambda s: {**as_member(group_id="audit-members")(s), "generation_id": 7}),
    Case("wrong member", "heartbeat", as_member(group_id="audit-members", member_id="who")),
    Case("wrong instance", "heartbeat", as_member(group_id="audit-members", group_instance_id="x")),
    Case("wrong group", "heartbeat", as_member(group_id="audit-nobody")),
    Case("empty group", "heartbeat", as_member(group_id="")),
    Case("member commits", "offset_commit", lambda s: commit(
        "audit-members", "audit-offsets", (0, 3, ""), member_id=s.kept["member"],
        generation_id_or_member_epoch=s.kept["generation"])(s)),
    Case("old generation", "offset_commit", lambda s: commit(
        "audit-members", "audit-offsets", (0, 3, ""), member_id=s.kept["member"],
        generation_id_or_member_epoch=s.kept["generation"] - 1)(s)),
    Case("nobody, while there are members", "offset_commit", commit("audit-members", "audit-offsets", (0, 3, ""))),
    Case("member deletes", "offset_delete", {"group_id": "audit-members", "topics": [
        {"name": "audit-offsets", "partitions": [{"partition_index": 0}]}]}),
    Case("all", "describe_groups", {"groups": ["audit-members", "audit-nobody", "", "audit-g8", "audit-members"],
                                    "include_authorized_operations": True}),
    Case("none", "describe_groups", {"groups": []}),
    *(
        Case(f"states {states} types {types}", "list_groups", {"states_filter": states, "types_filter": types})
        for states, types in (([], []), (["Stable"], []), (["stable", "Empty"], []), (["nonsense"], []),
                              ([""], []), ([], ["classic"]), ([], ["Classic"]), ([], ["consumer"]),
                              ([], ["nonsense"]), (["Empty"], ["classic", "share"]), ([], [""]))
    ),
    Case("with members", "delete_groups", {"groups_names": ["audit-members"]}),
    Case("wrong member", "leave_group", {"group_id": "audit-members", "member_id": "who", "members": [
        {"member_id": "who"}, {"member_id": "", "group_instance_id": "i"}]}),
    Case("wrong group", "leave_group", {"group_id": "audit-nobody", "member_id": "who",
                                        "members": [{"member_id": "who"}]}),
    Case("empty group", "leave_group", {"group_id": "", "member_id": "who", "members": [{"member_id": "who"}]}),
    Case("nobody", "leave_group", {"group_id": "audit-members", "members": []}, range(3, 6)),
    Case("leaves", "leave_group", lambda s: {"group_id": "audit-members", "member_id": s.kept["member"],
         "members": [{"member_id": s.kept["member"]}]}, one(5)),
    Case("after it left", "heartbeat", as_member(group_id="audit-members")),
    Case("static", "join_group", join("audit-static", group_instance_id="inst"), one(9), keep=keep_member),
    Case("static syncs", "sync_group", lambda s: sync(group_id="audit-static", group_instance_id="inst")(s), one(5)),
    Case("static again", "join_group", join("audit-static", group_instance_id="inst"), one(9)),
    Case("fenced", "heartbeat", as_member(group_id="audit-static", group_instance_id="inst")),
    Case("static group", "describe_groups", {"groups": ["audit-static"]}),
    Case("static leaves", "leave_group", {"group_id": "audit-static", "members": [
        {"member_id": "", "group_instance_id": "inst"}]}, range(3, 6)),
    Case("old join", "join_group", join("audit-old{v}"), range(4)),
    Case("deleted", "delete_groups", {"groups_names": ["audit-g{v}", "audit-nobody", "", "audit-g{v}"]}),
    Case("nothing", "delete_groups", {"groups_names": []}),
]  # fmt: skip


def describe(*resources: tuple[int, str, list[str] | None], synonyms: bool = False) -> Body:
    return {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name, keys in resources
        ],
        "include_synonyms": synonyms,
    }


DESCRIBE_CONFIGS = [
    *(
        Case(f"{label}, synonyms {synonyms}", "describe_configs",
             describe((kind, name, keys), synonyms=synonyms))
        for synonyms in (False, True)
        for label, kind, name, keys in (
            ("topic", TOPIC_CONFIG, "audit-config", None), ("topic, some", TOPIC_CONFIG, "audit-config", ["retention.ms", "no.such"]),
            ("topic, none", TOPIC_CONFIG, "audit-config", []), ("broker", BROKER_CONFIG, "1", None),
            ("all brokers", BROKER_CONFIG, "", None), ("group", GROUP_CONFIG, "audit-group", None),
            ("logger", LOGGER, "1", ["root"]), ("metrics", METRICS_CONFIG, "sub", None),
        )
    ),
    *(
        Case(f"{kind} {name!r}", "describe_configs", describe((kind, name, ["retention.ms"])))
        for kind, name in ((TOPIC_CONFIG, "audit-none"), (TOPIC_CONFIG, ""), (TOPIC_CONFIG, "a b"),
                           (BROKER_CONFIG, "9"), (BROKER_CONFIG, "x"), (LOGGER, "9"), (LOGGER, ""), (LOGGER, "x"),
                           (0, "a"), (1, "a"), (3, "a"), (64, "a"), (GROUP_CONFIG, ""), (METRICS_CONFIG, ""))
    ),
    Case("nothing", "describe_configs", describe()),
    *(
        Case(f"types {types}", "list_config_resources", {"resource_types": types})
        for types in ([], [2], [4], [8], [16], [32], [2, 16], [0], [3], [77])
    ),
]  # fmt: skip


def incremental(
    kind: int, name: str, *rows: tuple[str, int, str | None], validate: bool = True
) -> Body:
    return {
        "validate_only": validate,
        "resources": [
            {"resource_type": kind, "resource_name": name, "configs": [
                {"name": key, "config_operation": operation, "value": value} for key, operation, value in rows]}
        ],
    }  # fmt: skip


def whole(kind: int, name: str, *rows: tuple[str, str | None], validate: bool = True) -> Body:
    return {
        "validate_only": validate,
        "resources": [
            {"resource_type": kind, "resource_name": name,
             "configs": [{"name": key, "value": value} for key, value in rows]}
        ],
    }  # fmt: skip


BAD_VALUES = (
    "",
    "x",
    "-1",
    "-2",
    "0",
    "1.5",
    "99999999999999999999",
    "true",
    " 1 ",
    "delete,,compact",
)
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
RESOURCES = (
    (TOPIC_CONFIG, "audit-config"), (TOPIC_CONFIG, "audit-none"), (TOPIC_CONFIG, ""), (BROKER_CONFIG, "1"),
    (BROKER_CONFIG, ""), (BROKER_CONFIG, "9"), (BROKER_CONFIG, "x"), (GROUP_CONFIG, "audit-group"),
    (GROUP_CONFIG, ""), (METRICS_CONFIG, "sub"), (METRICS_CONFIG, ""), (LOGGER, "1"), (LOGGER, "9"), (0, "a"), (77, "a"),
)  # fmt: skip
ROWS: tuple[tuple[str, int, str | None], ...] = (
    ("no.such", SET, "1"), ("retention.ms", SET, None), ("retention.ms", SET, "5"), ("retention.ms", APPEND, "5"),
    ("retention.ms", 9, "5"), ("cleanup.policy", APPEND, "compact"), ("cleanup.policy", SUBTRACT, "delete"),
    ("cleanup.policy", SUBTRACT, "none"), ("retention.ms", DELETE, None), ("no.such", DELETE, None), ("", SET, "1"),
    ("min.insync.replicas", SET, "5"), ("log.retention.ms", SET, "5"), ("log.dirs", SET, "/x"),
    ("listeners", SET, "PLAINTEXT://:1"), ("message.max.bytes", SET, "x"), ("num.io.threads", SET, "100"),
    ("num.io.threads", SET, "0"), ("consumer.session.timeout.ms", SET, "1"), ("consumer.session.timeout.ms", SET, "50000"),
    ("interval.ms", SET, "1"), ("match", SET, "a=b"), ("root", SET, "NONSENSE"), ("root", DELETE, None),
    ("kafka", SET, None),
)  # fmt: skip
ALTER_CONFIGS = [
    *(
        Case(f"topic {key} = {value!r}", "incremental_alter_configs",
             incremental(TOPIC_CONFIG, "audit-config", (key, SET, value)), one(1))
        for key in sorted(TOPIC_KEYS)
        for value in BAD_VALUES
    ),
    *(
        Case(f"{kind} {name!r}: {key} {operation} {value}", "incremental_alter_configs",
             incremental(kind, name, (key, operation, value)), one(1))
        for kind, name in RESOURCES
        for key, operation, value in ROWS
    ),
    *(
        Case(f"{kind} {name!r}: {key} {value}", "alter_configs", whole(kind, name, (key, value)), one(2))
        for kind, name in RESOURCES
        for key, operation, value in ROWS
        if operation == SET
    ),
    *(
        Case(f"{kind} {name!r}", api, (incremental if api[0] == "i" else whole)(kind, name))
        for api in ("incremental_alter_configs", "alter_configs")
        for kind, name in RESOURCES
    ),
    Case("key twice", "incremental_alter_configs",
         incremental(TOPIC_CONFIG, "audit-config", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
    Case("key set and deleted", "incremental_alter_configs",
         incremental(TOPIC_CONFIG, "audit-config", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))),
    Case("key twice", "alter_configs", whole(TOPIC_CONFIG, "audit-config", ("retention.ms", "1"), ("retention.ms", "2"))),
    Case("resource twice", "incremental_alter_configs",
         {"validate_only": True, "resources": incremental(TOPIC_CONFIG, "audit-config")["resources"] * 2}),
    Case("nothing", "incremental_alter_configs", {"resources": []}),
    Case("nothing", "alter_configs", {"resources": []}),
    Case("both policies", "incremental_alter_configs",
         incremental(TOPIC_CONFIG, "audit-config", ("cleanup.policy", APPEND, "compact"), validate=False)),
    Case("append again", "incremental_alter_configs",
         incremental(TOPIC_CONFIG, "audit-config", ("cleanup.policy", APPEND, "compact"), validate=False)),
    Case("replaced", "alter_configs", whole(TOPIC_CONFIG, "audit-config", ("retention.bytes", "77"), validate=False), settle_s=0.2),
    Case("after it", "describe_configs", describe((TOPIC_CONFIG, "audit-config", None), synonyms=True), one(4)),
    Case("broker", "incremental_alter_configs", incremental(BROKER_CONFIG, "1", ("log.retention.ms", SET, "7000"),
         ("message.max.bytes", SET, "2000000"), validate=False), settle_s=0.2),
    Case("cluster", "incremental_alter_configs", incremental(BROKER_CONFIG, "", ("log.retention.ms", SET, "8000"),
         ("log.segment.bytes", SET, "3000000"), validate=False), settle_s=0.4),
    Case("topic below it", "describe_configs", describe((TOPIC_CONFIG, "audit-two", None), synonyms=True)),
    Case("broker with it", "describe_configs", describe((BROKER_CONFIG, "1", None), synonyms=True)),
    Case("cluster with it", "describe_configs", describe((BROKER_CONFIG, "", None), synonyms=True)),
    Case("resources", "list_config_resources", {"resource_types": []}),
]  # fmt: skip


def quota(
    entity: Sequence[tuple[str, str | None]], *ops: tuple[str, float, bool], validate: bool = False
) -> Body:
    return {
        "validate_only": validate,
        "entries": [{"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                     "ops": [{"key": key, "value": value, "remove": remove} for key, value, remove in ops]}],
    }  # fmt: skip


def components(*rows: tuple[str, int, str | None], strict: bool = False) -> Body:
    return {
        "strict": strict,
        "components": [
            {"entity_type": kind, "match_type": how, "match": what} for kind, how, what in rows
        ],
    }


BYTES = "producer_byte_rate"
QUOTAS = [
    *(
        Case(f"{entity} {ops}", "alter_client_quotas", quota(entity, *ops))
        for entity, ops in (
            ([("user", "u")], [(BYTES, 1000.5, False)]), ([("user", None)], [(BYTES, 2000.0, False)]),
            ([("client-id", "c")], [("request_percentage", 50.0, False)]),
            ([("user", "u"), ("client-id", "c")], [("consumer_byte_rate", 10.0, False)]),
            ([("user", "u")], [("nonsense", 1.0, False)]), ([("user", "u")], [(BYTES, -1.0, False)]),
            ([("user", "u")], [(BYTES, 0.0, False)]), ([("user", "u")], [("consumer_byte_rate", 0.5, False)]),
            ([("other", "u")], [(BYTES, 1.0, False)]), ([], [(BYTES, 1.0, False)]),
            ([("user", "")], [(BYTES, 1.0, False)]), ([("ip", "1.2.3.4")], [("connection_creation_rate", 5.0, False)]),
            ([("ip", "nonsense...")], [("connection_creation_rate", 5.0, False)]), ([("ip", "1.2.3.4")], [(BYTES, 5.0, False)]),
            ([("ip", "1.2.3.4"), ("user", "u")], [(BYTES, 5.0, False)]),
            ([("user", "u")], [("connection_creation_rate", 5.0, False)]), ([("user", "nobody")], [(BYTES, 0.0, True)]),
            ([("user", "u")], []),
            ([("ip", None)], [("connection_creation_rate", 5.5, False)]),
            ([("user", "u")], [(BYTES, float("inf"), False)]),
            ([("user", "w")], [("controller_mutation_rate", 1.5, False)]),
        )
    ),
    Case("user twice", "alter_client_quotas", quota([("user", "u"), ("user", "v")], (BYTES, 5.0, False), validate=True)),
    Case("not a number", "alter_client_quotas", quota([("user", "u")], (BYTES, float("nan"), False), validate=True)),
    Case("key twice", "alter_client_quotas",
         quota([("user", "u")], (BYTES, 5.0, False), (BYTES, 6.0, False), validate=True)),
    Case("validated", "alter_client_quotas", quota([("user", "z")], (BYTES, 1.0, False), validate=True)),
    Case("nothing", "alter_client_quotas", {"entries": []}, settle_s=0.3),
    *(
        Case(f"{rows} strict {strict}", "describe_client_quotas", components(*rows, strict=strict))
        for strict in (False, True)
        for rows in (
            (), (("user", 0, "u"),), (("user", 1, None),), (("user", 2, None),), (("client-id", 2, None),),
            (("user", 0, "u"), ("client-id", 0, "c")), (("ip", 2, None),), (("ip", 0, "1.2.3.4"),),
            (("other", 2, None),), (("", 2, None),), (("user", 9, None),), (("user", 0, None),), (("user", 1, "x"),),
            (("user", 2, "x"),), (("user", 2, None), ("user", 2, None)), (("user", 2, None), ("ip", 2, None)),
        )
    ),
    *(
        Case(f"{names}", "describe_user_scram_credentials",
             {"users": None if names is None else [{"name": name} for name in names]})
        for names in (None, [], ["nobody"], ["nobody", "nobody"], [""])
    ),
    *(
        Case(f"{number}", "alter_user_scram_credentials", body)
        for number, body in enumerate((
            {}, {"deletions": [{"name": "nobody", "mechanism": 1}]}, {"deletions": [{"name": "nobody", "mechanism": 9}]},
            {"deletions": [{"name": "", "mechanism": 1}]},
            {"upsertions": [{"name": "s", "mechanism": 1, "iterations": 4096, "salt": b"1234", "salted_password": b"x" * 32}]},
            {"upsertions": [{"name": "t", "mechanism": 1, "iterations": 5, "salt": b"1234", "salted_password": b"x"}]},
            {"upsertions": [{"name": "t", "mechanism": 1, "iterations": 50000, "salt": b"1234", "salted_password": b"x"}]},
            {"upsertions": [{"name": "t", "mechanism": 0, "iterations": 4096, "salt": b"1234", "salted_password": b"x"}]},
            {"upsertions": [{"name": "", "mechanism": 1, "iterations": 4096, "salt": b"1234", "salted_password": b"x"}]},
            {"upsertions": [{"name": "t", "mechanism": 1, "iterations": 4096, "salt": b"", "salted_password": b""}]},
            {"upsertions": [{"name": "t", "mechanism": 2, "iterations": 4096, "salt": b"1", "salted_password": b"x"}] * 2},
            {"deletions": [{"name": "s", "mechanism": 1}], "upsertions": [
                {"name": "s", "mechanism": 1, "iterations": 4096, "salt": b"1234", "salted_password": b"x" * 32}]},
            {"deletions": [{"name": "s", "mechanism": 2}]},
        ))
    ),
    Case("after", "describe_user_scram_credentials", {"users": [{"name": "s"}, {"name": "nobody"}]}),
    Case("acls", "describe_acls", {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1,
                                   "permission_type": 1}),
    Case("acls", "create_acls", {"creations": [
        {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:u", "host": "*",
         "operation": 3, "permission_type": 3}]}),
    Case("acls", "delete_acls", {"filters": [
        {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}]}),
    Case("no login", "create_delegation_token", {"renewers": [], "max_lifetime_ms": -1}),
    Case("no login", "renew_delegation_token", {"hmac": b"1", "renew_period_ms": -1}),
    Case("no login", "expire_delegation_token", {"hmac": b"1", "expiry_time_period_ms": -1}),
    Case("no login", "describe_delegation_token", {"owners": ALL}),
    Case("no SASL", "sasl_handshake", {"mechanism": "PLAIN"}),
    Case("no SASL", "sasl_authenticate", {"auth_bytes": b"\0a\0b"}),
]  # fmt: skip


def move(path: str, name: str, *indexes: int) -> Any:
    """Return a move to `path`: the number of a log directory, or a path."""

    def body(state: State) -> Body:
        folder = str(state.node.log_dirs[int(path)]) if path.isdigit() else path
        return {"dirs": [{"path": folder, "topics": [{"name": name, "partitions": list(indexes)}]}]}

    return body


LOG_DIRS = [
    Case("one topic", "describe_log_dirs", {"topics": [{"topic": "audit-data", "partitions": [0]}]}),
    Case("unknown", "describe_log_dirs", {"topics": [{"topic": "audit-none", "partitions": [0]}]}),
    Case("unknown partition", "describe_log_dirs", {"topics": [{"topic": "audit-data", "partitions": [9]}]}),
    Case("none", "describe_log_dirs", {"topics": []}),
    Case("no such path", "alter_replica_log_dirs", move("/nowhere", "audit-data", 0)),
    Case("no path", "alter_replica_log_dirs", move("", "audit-data", 0)),
    Case("relative", "alter_replica_log_dirs", move("d1", "audit-data", 0)),
    Case("unknown topic", "alter_replica_log_dirs", move("0", "audit-none", 0)),
    Case("unknown partition", "alter_replica_log_dirs", move("0", "audit-data", 9)),
    Case("nothing", "alter_replica_log_dirs", {"dirs": []}),
    Case("no partition", "alter_replica_log_dirs", move("0", "audit-data")),
]  # fmt: skip

CHAPTERS = {
    "api versions": API_VERSIONS,
    "metadata": METADATA,
    "describe topic partitions": DESCRIBE_TOPICS,
    "fetch": FETCH,
    "produce": PRODUCE,
    "offsets": OFFSETS,
    "group offsets": GROUP_OFFSETS,
    "members": MEMBERS,
    "create topics": CREATE_TOPICS,
    "delete topics": DELETE_TOPICS,
    "partitions": PARTITIONS,
    "cluster": CLUSTER,
    "describe configs": DESCRIBE_CONFIGS,
    "alter configs": ALTER_CONFIGS,
    "quotas": QUOTAS,
    "log directories": LOG_DIRS,
}
