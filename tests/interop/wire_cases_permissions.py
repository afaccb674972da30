"""Requests of clients with and without rights, for each API that asks the authorizer.

All clients are User:ANONYMOUS; what they may do depends on the address from which they come. The
names begin with `own` if the clients with rights on topics, groups and transactional ids have them
there, and with `hidden` if nobody but the administrator has. `absent` does not exist.
"""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from typing import Any, Final

from wire_cases import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    LOGGER,
    METRICS_CONFIG,
    TOPIC_CONFIG,
    batch,
    create,
    partitions,
    topic,
)
from wire_exchange import Body, Case, State

from spindle.authorization.operations import CLUSTER_NAME, Operation, PatternType, ResourceType

TOPICS, GROUPS = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, IDS = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
ADMINISTRATOR: Final = "127.0.0.1"
"""May do everything; the nodes themselves come from here, too."""
NOBODY: Final = "127.0.0.2"
OWNER: Final = "127.0.0.3"
CLIENTS: Final = {
    "nobody": NOBODY,
    "owner": OWNER,
    "describer": "127.0.0.4",
    "operator": "127.0.0.5",
    "reader": "127.0.0.6",
    "writer": "127.0.0.7",
    "half operator": "127.0.0.8",
}
_RIGHTS: Final[dict[str, tuple[tuple[ResourceType, Operation], ...]]] = {
    "owner": ((TOPICS, Operation.ALL), (GROUPS, Operation.ALL), (IDS, Operation.ALL)),
    "describer": (
        (TOPICS, Operation.DESCRIBE),
        (GROUPS, Operation.DESCRIBE),
        (IDS, Operation.DESCRIBE),
    ),
    "operator": ((CLUSTER, Operation.ALL),),
    "reader": ((TOPICS, Operation.READ), (GROUPS, Operation.READ)),
    "writer": ((TOPICS, Operation.WRITE), (IDS, Operation.WRITE), (GROUPS, Operation.READ)),
    "half operator": (
        (CLUSTER, Operation.DESCRIBE),
        (CLUSTER, Operation.CREATE),
        (CLUSTER, Operation.ALTER_CONFIGS),
        (TOPICS, Operation.DESCRIBE),
    ),
}


def _allow(kind: ResourceType, name: str, pattern: PatternType, host: str, operation: int) -> Body:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": operation,
        "permission_type": 3,
    }


def _rights() -> list[Body]:
    everything = [(CLUSTER, CLUSTER_NAME), (TOPICS, "*"), (GROUPS, "*"), (IDS, "*")]
    rights = [
        _allow(kind, name, PatternType.LITERAL, ADMINISTRATOR, Operation.ALL)
        for kind, name in everything
    ]
    for client, allowed in _RIGHTS.items():
        for kind, operation in allowed:
            is_cluster = kind is CLUSTER
            name = CLUSTER_NAME if is_cluster else "own"
            pattern = PatternType.LITERAL if is_cluster else PatternType.PREFIXED
            rights.append(_allow(kind, name, pattern, CLIENTS[client], operation))
    return rights


MEMBER: Final = "m" * 22
COMMITTED: Final = ("own-a", "hidden-a")


def id_of(state: State, name: str) -> bytes:
    """Return the id of a topic, another one for each name that does not exist."""
    return state.topic_ids.get(name, name.encode().ljust(16, b"\1"))


def commit(group: str, *names: str) -> Any:
    return lambda state: {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {"name": name, "topic_id": id_of(state, name),
             "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
            for name in names
        ],
    }  # fmt: skip


def in_transaction(transactional_id: str, producer_id: int, group: str, *names: str) -> Any:
    return lambda state: {
        "transactional_id": transactional_id, "group_id": group, "producer_id": producer_id,
        "producer_epoch": 0, "generation_id_or_member_epoch": -1, "member_id": "",
        "topics": [
            {"name": name, "topic_id": id_of(state, name),
             "partitions": [{"partition_index": 0, "committed_offset": 1}]}
            for name in names
        ],
    }  # fmt: skip


def consumer_heartbeat(group: str, *names: str, member: str = MEMBER) -> Body:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": list(names),
        "topic_partitions": [],
    }


def _is_assigned(answer: Any) -> bool:
    return bool(answer.assignment is not None and answer.assignment.topic_partitions)


def produce_all(*names: str, **more: Any) -> Any:
    def body(state: State) -> Body:
        return {
            "acks": -1, "timeout_ms": 5_000,
            "topic_data": [
                {"name": name, "topic_id": id_of(state, name),
                 "partition_data": [{"index": 0, "records": batch(b"x", **more.get("batch", {}))}]}
                for name in names
            ],
            "transactional_id": more.get("transactional_id"),
        }  # fmt: skip

    return body


def last(version: int) -> range:
    return range(version, version + 1)


SETUP: Final = [
    Case("topics", "create_topics", create(topic("own-a"), topic("own-b"), topic("hidden-a"), topic("own-spare"), topic("hidden-spare")), last(7), settle_s=0.3),
    Case("data", "produce", produce_all("own-a", "hidden-a"), last(12), patient=True),
    Case("producer id", "init_producer_id", {"transactional_id": None}, last(4), patient=True),
    *(Case(f"{name} group coordinator", "find_coordinator", {"key": f"{name}-group", "key_type": 0}, last(1), patient=True) for name in ("own", "hidden")),
    Case("transaction coordinator", "find_coordinator", {"key": "own-id", "key_type": 1}, last(1), patient=True),
    *(Case(f"offsets of {group}", "offset_commit", commit(group, *COMMITTED), last(8), patient=True) for group in ("own-group", "hidden-group", "own-spare-group")),
    *(Case(f"{name} id", "init_producer_id", {"transactional_id": name, "transaction_timeout_ms": 60_000}, last(4), patient=True) for name in ("own-id", "hidden-id")),
    Case("member", "consumer_group_heartbeat", consumer_heartbeat("own-mixed", "own-a", "hidden-a"), last(1), patient=True, until=_is_assigned),
    Case("other member", "consumer_group_heartbeat", consumer_heartbeat("own-consumers", "own-a"), last(1), patient=True, until=_is_assigned),
    Case("rights", "create_acls", {"creations": _rights()}, last(3)),
]  # fmt: skip


def named(*names: str, **more: Any) -> Body:
    return {"topics": [{"name": name} for name in names], **more}


def ids(*names: str, **more: Any) -> Any:
    return lambda state: {
        "topics": [{"name": None, "topic_id": id_of(state, name)} for name in names],
        **more,
    }


ALL: Final = ("own-a", "hidden-a", "own-absent", "absent")
OPERATIONS: Final = {
    "include_topic_authorized_operations": True,
    "include_cluster_authorized_operations": True,
    "allow_auto_topic_creation": False,
}
METADATA: Final = [
    Case("all", "metadata", {"topics": None, **OPERATIONS}, range(8, 14)),
    Case("all, old", "metadata", {"topics": [], "allow_auto_topic_creation": False}, range(1)),
    Case("named", "metadata", named(*ALL, **OPERATIONS), range(8, 14)),
    Case("named, plain", "metadata", named(*ALL, allow_auto_topic_creation=False), range(4, 14)),
    Case("by id", "metadata", ids("own-a", "hidden-a", "absent"), range(12, 14)),
    Case("creating", "metadata", named("own-auto", "hidden-auto", "own-a"), patient=True),
    Case("topics", "describe_topic_partitions", {**named(*ALL), "response_partition_limit": 10}),
    Case("all topics", "describe_topic_partitions", {"topics": [], "response_partition_limit": 10}),
    Case("cluster", "describe_cluster", {"endpoint_type": 1, "include_cluster_authorized_operations": True}),
    Case("quorum", "describe_quorum", {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
]  # fmt: skip


def positions(*names: str, **partition: Any) -> list[Body]:
    return [{"name": name, "partitions": [{"partition_index": 0, **partition}]} for name in names]


def fetch(*names: str, replica: int = -1) -> Any:
    return lambda state: {
        "replica_id": replica, "replica_state": {"replica_id": replica, "replica_epoch": -1},
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1,
        "topics": [
            {"topic": name, "topic_id": id_of(state, name),
             "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}]}
            for name in names
        ],
    }  # fmt: skip


def data(number: int) -> list[Case]:
    """Return requests for records, of the client with this number."""
    transactional = {
        "producer_id": 1000,
        "producer_epoch": 0,
        "base_sequence": 0,
        "is_transactional": True,
    }
    return [
        Case("records", "produce", produce_all(*ALL)),
        Case("denied transaction", "produce", produce_all("own-a", batch=transactional, transactional_id="hidden-id")),
        Case("records", "fetch", fetch(*ALL)),
        Case("follower", "fetch", fetch("hidden-a", "own-a", replica=9)),
        Case("offsets", "list_offsets", {"replica_id": -1, "topics": positions(*ALL, timestamp=-1)}),
        Case("epochs", "offset_for_leader_epoch", {"replica_id": -1, "topics": [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]} for name in ALL]}),
        Case("records", "delete_records", {"timeout_ms": 5000, "topics": positions(*ALL, offset=number % 2)}),
        Case("producers", "describe_producers", {"topics": [{"name": name, "partition_indexes": [0]} for name in ALL]}),
        Case("directories", "describe_log_dirs", {"topics": [{"topic": "absent", "partitions": [0]}]}),
        Case("move", "alter_replica_log_dirs", {"dirs": [{"path": "/none", "topics": [{"name": "own-a", "partitions": [0]}]}]}),
    ]  # fmt: skip


BOTH_GROUPS: Final = ["own-group", "hidden-group"]


def classic(group: str) -> Body:
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 1_000, "member_id": "unknown",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip


def fetched_offsets(group: str, names: tuple[str, ...] | None) -> Any:
    def body(state: State) -> Body:
        old = None if names is None else [{"name": n, "partition_indexes": [0]} for n in names]
        topics = None if names is None else [
            {"name": n, "partition_indexes": [0], "topic_id": id_of(state, n)} for n in names
        ]  # fmt: skip
        return {
            "group_id": group, "topics": old,
            "groups": [{"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}],
        }  # fmt: skip

    return body


def of_group(group: str) -> list[Case]:
    """Return requests about one group."""
    return [
        Case(f"{group} joins", "join_group", classic(group)),
        Case(f"{group} syncs", "sync_group", {"group_id": group, "generation_id": 1, "member_id": "m", "protocol_type": "consumer", "protocol_name": "range", "assignments": []}),
        Case(f"{group} lives", "heartbeat", {"group_id": group, "generation_id": 1, "member_id": "m"}),
        Case(f"{group} leaves", "leave_group", {"group_id": group, "member_id": "m", "members": [{"member_id": "m", "group_instance_id": None, "reason": None}]}),
        Case(f"{group} commits", "offset_commit", commit(group, *ALL)),
        Case(f"{group} offsets", "offset_fetch", fetched_offsets(group, ALL)),
        Case(f"{group} all offsets", "offset_fetch", fetched_offsets(group, None), range(2, 11)),
        Case(f"{group} deletes offsets", "offset_delete", {"group_id": group, "topics": positions("own-b", "hidden-spare", "own-absent", "absent")}),
        Case(f"{group} coordinator", "find_coordinator", {"key": group, "key_type": 0, "coordinator_keys": [group]}),
        Case(f"{group} in a transaction", "txn_offset_commit", in_transaction("hidden-id", 1, group, "own-a")),
    ]  # fmt: skip


GROUP_CASES: Final = [
    *of_group("own-group"),
    *of_group("hidden-group"),
    Case("groups", "describe_groups", {"groups": BOTH_GROUPS, "include_authorized_operations": True}),
    Case("groups", "list_groups", {"states_filter": [], "types_filter": []}),
    Case("coordinators", "find_coordinator", {"key_type": 0, "coordinator_keys": BOTH_GROUPS}, range(4, 7)),
    Case("ids", "find_coordinator", {"key": "own-id", "key_type": 1, "coordinator_keys": ["own-id", "hidden-id"]}, range(1, 7)),
    Case("consumer groups", "consumer_group_describe", {"group_ids": ["own-mixed", "own-consumers", "hidden-group"], "include_authorized_operations": True}),
    Case("hidden group", "consumer_group_heartbeat", consumer_heartbeat("hidden-consumers", "own-a")),
    Case("hidden topic", "consumer_group_heartbeat", consumer_heartbeat("own-refused", "own-a", "hidden-a")),
    Case("absent group", "delete_groups", {"groups_names": ["own-absent", "hidden-absent"]}),
]  # fmt: skip


def _txn_topics(*names: str) -> list[Body]:
    return [{"name": name, "partitions": [0]} for name in names]


def _end(name: str) -> Body:
    return {"transactional_id": name, "producer_id": 999, "producer_epoch": 0, "committed": False}


def _add(name: str, *topics: str) -> Body:
    return {
        "v3_and_below_transactional_id": name, "v3_and_below_producer_id": 999, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": _txn_topics(*topics),
        "transactions": [{"transactional_id": name, "producer_id": 999, "producer_epoch": 0, "verify_only": False, "topics": _txn_topics(*topics)}],
    }  # fmt: skip


TRANSACTIONS: Final = [
    Case("idempotent", "init_producer_id", {"transactional_id": None}),
    Case("hidden id", "init_producer_id", {"transactional_id": "hidden-id", "transaction_timeout_ms": 60_000, "producer_id": 999, "producer_epoch": 0}),
    Case("own id of another", "init_producer_id", {"transactional_id": "own-id", "transaction_timeout_ms": 60_000, "producer_id": 999, "producer_epoch": 0}, range(3, 6)),
    Case("own id", "add_partitions_to_txn", _add("own-id", "own-a", "hidden-a", "absent")),
    Case("hidden id", "add_partitions_to_txn", _add("hidden-id", "own-a", "hidden-a")),
    *(Case(f"{name} id, {group}", "add_offsets_to_txn", {"transactional_id": f"{name}-id", "producer_id": 999, "producer_epoch": 0, "group_id": group}) for name in ("own", "hidden") for group in BOTH_GROUPS),
    *(Case(f"{name} id", "end_txn", _end(f"{name}-id")) for name in ("own", "hidden")),
    *(Case(f"own id, {group}", "txn_offset_commit", in_transaction("own-absent-id", 999, group, "hidden-a", "absent", "own-absent")) for group in BOTH_GROUPS),
    Case("ids", "describe_transactions", {"transactional_ids": ["own-id", "hidden-id", "absent"]}),
    Case("ids", "list_transactions", {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}),
    Case("markers", "write_txn_markers", {"markers": [{"producer_id": 999, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0, "topics": [{"name": "absent", "partition_indexes": [0]}]}]}),
]  # fmt: skip


def configured(*names: str, kinds: tuple[int, ...] = (TOPIC_CONFIG, GROUP_CONFIG)) -> list[Body]:
    return [{"resource_type": kind, "resource_name": name} for kind in kinds for name in names]


NODE_RESOURCES: Final = [(BROKER_CONFIG, ""), (LOGGER, "1"), (METRICS_CONFIG, "own-metrics")]
_VALUES: Final = {TOPIC_CONFIG: ("retention.ms", "1000000"), GROUP_CONFIG: ("consumer.session.timeout.ms", "50000"),
                  BROKER_CONFIG: ("background.threads", "10"), METRICS_CONFIG: ("interval.ms", "1000"), LOGGER: ("root", "INFO")}  # fmt: skip


def replaced(*resources: tuple[int, str], **more: int) -> Body:
    return {"validate_only": True, "resources": [
        {"resource_type": kind, "resource_name": name,
         "configs": [{"name": _VALUES[kind][0], "value": _VALUES[kind][1], **more}]}
        for kind, name in resources]}  # fmt: skip


def altered(*resources: tuple[int, str]) -> Body:
    return replaced(*resources, config_operation=0)


_NAMED: Final = [
    (kind, name)
    for kind in (TOPIC_CONFIG, GROUP_CONFIG)
    for name in ("own-a", "hidden-a", "absent")
]
CONFIGS: Final = [
    Case("topics and groups", "describe_configs", {"resources": [{**r, "configuration_keys": ["retention.ms", "consumer.session.timeout.ms"]} for r in configured(*ALL)]}),
    *(Case(f"kind {kind}", "describe_configs", {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": ["no.such"]}]}) for kind, name in NODE_RESOURCES),
    Case("topics and groups", "incremental_alter_configs", altered(*_NAMED)),
    *(Case(f"kind {kind}", "incremental_alter_configs", altered((kind, name))) for kind, name in NODE_RESOURCES),
    Case("topics and groups", "alter_configs", replaced(*_NAMED)),
    Case("broker", "alter_configs", replaced((BROKER_CONFIG, ""))),
    Case("resources", "list_config_resources", {"resource_types": [METRICS_CONFIG]}),
    Case("quotas", "describe_client_quotas", {"components": [], "strict": False}),
    Case("quota", "alter_client_quotas", {"validate_only": True, "entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}]}),
    Case("users", "describe_user_scram_credentials", {"users": [{"name": "nobody"}]}),
    Case("user", "alter_user_scram_credentials", {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
]  # fmt: skip

_ANY_ACL: Final = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
ADMINISTRATION: Final = [
    Case("topics", "create_topics", create(topic("own-new"), topic("hidden-new"), topic("own-a"), topic("hidden-a"), validate_only=True)),
    Case("partitions", "create_partitions", partitions(("own-a", 3, None), ("hidden-a", 3, None), ("own-absent", 3, None), ("absent", 3, None), validate=True)),
    Case("absent topics", "delete_topics", {"timeout_ms": 5000, "topic_names": ["own-absent", "absent"], "topics": [{"name": "own-absent"}, {"name": "absent"}]}),
    Case("hidden topic", "delete_topics", {"timeout_ms": 5000, "topic_names": ["hidden-a"], "topics": [{"name": "hidden-a"}]}),
    Case("hidden topic by id", "delete_topics", ids("hidden-a", "absent", timeout_ms=5000), range(6, 7)),
    Case("leaders", "elect_leaders", {"election_type": 0, "topic_partitions": [{"topic": "own-a", "partitions": [0]}], "timeout_ms": 5000}),
    Case("move", "alter_partition_reassignments", {"timeout_ms": 5000, "topics": [{"name": "absent", "partitions": [{"partition_index": 0, "replicas": [1]}]}]}),
    Case("moves", "list_partition_reassignments", {"timeout_ms": 5000, "topics": None}),
    Case("features", "update_features", {"timeout_ms": 5000, "validate_only": True, "feature_updates": [{"feature": "no.such", "max_version_level": 1, "upgrade_type": 1}]}),
    Case("broker", "unregister_broker", {"broker_id": 99}),
    Case("controller", "unregister_controller", {"controller_id": 99}),
    Case("of a host", "describe_acls", {**_ANY_ACL, "host_filter": CLIENTS["describer"]}),
    Case("another", "create_acls", {"creations": [_allow(TOPICS, "own-acl", PatternType.LITERAL, "*", Operation.READ)]}),
    Case("another", "delete_acls", {"filters": [{**_ANY_ACL, "resource_name_filter": "own-acl"}]}),
]  # fmt: skip


def chapters(number: int) -> list[Case]:
    """Return all requests of the client with this number."""
    return [*METADATA, *data(number), *GROUP_CASES, *TRANSACTIONS, *CONFIGS, *ADMINISTRATION]
