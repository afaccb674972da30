"""The API table of Apache Kafka 4.3: keys, version ranges, listeners, forwarding, headers."""

from importlib import import_module
from typing import Final, NamedTuple

from spindle.protocol.message import Message


class Api(NamedTuple):
    """One API as Kafka 4.3 serves it. Version numbers are inclusive."""

    key: int
    name: str
    first_version: int
    last_version: int
    flexible_from: int
    on_broker: bool
    on_controller: bool
    is_forwarded: bool
    """A broker passes it on to the active controller."""


_NEVER: Final = 32767


def _api(
    key: int, name: str, first: int, last: int, flexible: int, listeners: str = "B"
) -> tuple[int, Api]:
    return key, Api(
        key, name, first, last, flexible, "B" in listeners, "C" in listeners, "F" in listeners
    )


APIS: Final[dict[int, Api]] = dict(
    (
        _api(0, "produce", 3, 13, 9),
        _api(1, "fetch", 4, 18, 12, "BC"),
        _api(2, "list_offsets", 1, 11, 6),
        _api(3, "metadata", 0, 13, 9),
        _api(8, "offset_commit", 2, 10, 8),
        _api(9, "offset_fetch", 1, 10, 6),
        _api(10, "find_coordinator", 0, 6, 3),
        _api(11, "join_group", 0, 9, 6),
        _api(12, "heartbeat", 0, 4, 4),
        _api(13, "leave_group", 0, 5, 4),
        _api(14, "sync_group", 0, 5, 4),
        _api(15, "describe_groups", 0, 6, 5),
        _api(16, "list_groups", 0, 5, 3),
        _api(17, "sasl_handshake", 0, 1, _NEVER, "BC"),
        _api(18, "api_versions", 0, 4, 3, "BC"),
        _api(19, "create_topics", 2, 7, 5, "BCF"),
        _api(20, "delete_topics", 1, 6, 4, "BCF"),
        _api(21, "delete_records", 0, 2, 2),
        _api(22, "init_producer_id", 0, 5, 2),
        _api(23, "offset_for_leader_epoch", 2, 4, 4),
        _api(24, "add_partitions_to_txn", 0, 5, 3),
        _api(25, "add_offsets_to_txn", 0, 4, 3),
        _api(26, "end_txn", 0, 5, 3),
        _api(27, "write_txn_markers", 1, 2, 1),
        _api(28, "txn_offset_commit", 0, 5, 3),
        _api(29, "describe_acls", 1, 3, 2, "BC"),
        _api(30, "create_acls", 1, 3, 2, "BCF"),
        _api(31, "delete_acls", 1, 3, 2, "BCF"),
        _api(32, "describe_configs", 1, 4, 4, "BC"),
        _api(33, "alter_configs", 0, 2, 2, "BCF"),
        _api(34, "alter_replica_log_dirs", 1, 2, 2),
        _api(35, "describe_log_dirs", 1, 5, 2),
        _api(36, "sasl_authenticate", 0, 2, 2, "BC"),
        _api(37, "create_partitions", 0, 3, 2, "BCF"),
        _api(38, "create_delegation_token", 1, 3, 2, "BCF"),
        _api(39, "renew_delegation_token", 1, 2, 2, "BCF"),
        _api(40, "expire_delegation_token", 1, 2, 2, "BCF"),
        _api(41, "describe_delegation_token", 1, 3, 2, "BC"),
        _api(42, "delete_groups", 0, 2, 2),
        _api(43, "elect_leaders", 0, 2, 2, "BCF"),
        _api(44, "incremental_alter_configs", 0, 1, 1, "BCF"),
        _api(45, "alter_partition_reassignments", 0, 1, 0, "BCF"),
        _api(46, "list_partition_reassignments", 0, 0, 0, "BCF"),
        _api(47, "offset_delete", 0, 0, _NEVER),
        _api(48, "describe_client_quotas", 0, 1, 1),
        _api(49, "alter_client_quotas", 0, 1, 1, "BCF"),
        _api(50, "describe_user_scram_credentials", 0, 0, 0, "BC"),
        _api(51, "alter_user_scram_credentials", 0, 0, 0, "BCF"),
        _api(52, "vote", 0, 2, 0, "C"),
        _api(53, "begin_quorum_epoch", 0, 1, 1, "C"),
        _api(54, "end_quorum_epoch", 0, 1, 1, "C"),
        _api(55, "describe_quorum", 0, 2, 0, "BCF"),
        _api(56, "alter_partition", 2, 3, 0, "C"),
        _api(57, "update_features", 0, 2, 0, "BCF"),
        _api(58, "envelope", 0, 0, 0, "C"),
        _api(59, "fetch_snapshot", 0, 1, 0, "C"),
        _api(60, "describe_cluster", 0, 2, 0, "BC"),
        _api(61, "describe_producers", 0, 0, 0),
        _api(62, "broker_registration", 0, 4, 0, "C"),
        _api(63, "broker_heartbeat", 0, 2, 0, "C"),
        _api(64, "unregister_broker", 0, 0, 0, "BCF"),
        _api(65, "describe_transactions", 0, 0, 0),
        _api(66, "list_transactions", 0, 2, 0),
        _api(67, "allocate_producer_ids", 0, 0, 0, "CF"),
        _api(68, "consumer_group_heartbeat", 0, 1, 0),
        _api(69, "consumer_group_describe", 0, 1, 0),
        _api(70, "controller_registration", 0, 0, 0, "C"),
        _api(71, "get_telemetry_subscriptions", 0, 0, 0),
        _api(72, "push_telemetry", 0, 0, 0),
        _api(73, "assign_replicas_to_dirs", 0, 0, 0, "C"),
        _api(74, "list_config_resources", 0, 1, 0),
        _api(75, "describe_topic_partitions", 0, 0, 0),
        _api(80, "add_raft_voter", 0, 1, 0, "BCF"),
        _api(81, "remove_raft_voter", 0, 0, 0, "BCF"),
        _api(82, "update_raft_voter", 0, 0, 0, "C"),
    )
)

PRODUCE: Final = 0
FETCH: Final = 1
API_VERSIONS: Final = 18


def _class_of(key: int, suffix: str) -> type[Message]:
    name = APIS[key].name
    module = import_module(f"spindle.protocol.messages.{name}")
    title = "".join(part.capitalize() for part in name.split("_"))
    cls: type[Message] = getattr(module, title + suffix)
    return cls


_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def request_class(key: int) -> type[Message]:
    """The message class of an API's request; its module is imported at first use."""
    cls = _requests.get(key)
    if cls is None:
        cls = _requests[key] = _class_of(key, "Request")
    return cls


def response_class(key: int) -> type[Message]:
    """The message class of an API's response."""
    cls = _responses.get(key)
    if cls is None:
        cls = _responses[key] = _class_of(key, "Response")
    return cls


def request_header_version(key: int, version: int) -> int:
    """1, or 2 where the request is flexible."""
    return 2 if version >= APIS[key].flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """0, or 1 where the response is flexible; ApiVersions always answers with 0 (KIP-511)."""
    return 1 if version >= APIS[key].flexible_from and key != API_VERSIONS else 0
