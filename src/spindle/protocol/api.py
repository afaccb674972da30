"""The API table of Apache Kafka 4.4: keys, version ranges, listeners, forwarding, headers.

Keys from `FIRST_PRIVATE_KEY` on are Spindle's own. ApiVersions does not name them, so that clients
see exactly Kafka's set of APIs.
"""

from enum import IntEnum
from importlib import import_module
from typing import Final, NamedTuple

from spindle.protocol.message import Message


class ApiKey(IntEnum):
    """The number of each API on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    UNREGISTER_CONTROLLER = 94
    ALTER_DISKS = 32000
    DESCRIBE_DISKS = 32001
    REBUILD_REPLICAS = 32002


FIRST_PRIVATE_KEY: Final = 32000
"""The first key of Spindle's own APIs; Kafka's are far below."""


class Api(NamedTuple):
    """An API of Kafka 4.4, or of Spindle. Version numbers are inclusive."""

    key: ApiKey
    name: str
    first_version: int
    last_version: int
    flexible_from: int
    on_broker: bool
    on_controller: bool
    is_forwarded: bool
    """A broker forwards it to the active controller."""

    @property
    def message_name(self) -> str:
        """Kafka's name of its messages, such as `ApiVersions`."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_private(self) -> bool:
        """Return True for an API of Spindle, which ApiVersions does not name."""
        return self.key >= FIRST_PRIVATE_KEY


NO_VERSION: Final = 32767


def _api(
    key: ApiKey, first: int, last: int, flexible: int, listeners: str = "B"
) -> tuple[int, Api]:
    on_broker, on_controller, is_forwarded = ("B" in listeners, "C" in listeners, "F" in listeners)
    return key, Api(
        key, key.name.lower(), first, last, flexible, on_broker, on_controller, is_forwarded
    )


APIS: Final[dict[int, Api]] = dict(
    (
        _api(ApiKey.PRODUCE, 3, 13, 9),
        _api(ApiKey.FETCH, 4, 18, 12, "BC"),
        _api(ApiKey.LIST_OFFSETS, 1, 11, 6),
        _api(ApiKey.METADATA, 0, 13, 9),
        _api(ApiKey.OFFSET_COMMIT, 2, 10, 8),
        _api(ApiKey.OFFSET_FETCH, 1, 10, 6),
        _api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
        _api(ApiKey.JOIN_GROUP, 0, 9, 6),
        _api(ApiKey.HEARTBEAT, 0, 4, 4),
        _api(ApiKey.LEAVE_GROUP, 0, 5, 4),
        _api(ApiKey.SYNC_GROUP, 0, 5, 4),
        _api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
        _api(ApiKey.LIST_GROUPS, 0, 5, 3),
        _api(ApiKey.SASL_HANDSHAKE, 0, 1, NO_VERSION, "BC"),
        _api(ApiKey.API_VERSIONS, 0, 5, 3, "BC"),
        _api(ApiKey.CREATE_TOPICS, 2, 7, 5, "BCF"),
        _api(ApiKey.DELETE_TOPICS, 1, 6, 4, "BCF"),
        _api(ApiKey.DELETE_RECORDS, 0, 2, 2),
        _api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
        _api(ApiKey.END_TXN, 0, 5, 3),
        _api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
        _api(ApiKey.TXN_OFFSET_COMMIT, 0, 6, 3),
        _api(ApiKey.DESCRIBE_ACLS, 1, 3, 2, "BC"),
        _api(ApiKey.CREATE_ACLS, 1, 3, 2, "BCF"),
        _api(ApiKey.DELETE_ACLS, 1, 3, 2, "BCF"),
        _api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, "BC"),
        _api(ApiKey.ALTER_CONFIGS, 0, 2, 2, "BCF"),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
        _api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
        _api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2, "BC"),
        _api(ApiKey.CREATE_PARTITIONS, 0, 3, 2, "BCF"),
        _api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2, "BCF"),
        _api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2, "BCF"),
        _api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2, "BCF"),
        _api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2, "BC"),
        _api(ApiKey.DELETE_GROUPS, 0, 3, 2),
        _api(ApiKey.ELECT_LEADERS, 0, 2, 2, "BCF"),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, "BCF"),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0, "BCF"),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, "BCF"),
        _api(ApiKey.OFFSET_DELETE, 0, 0, NO_VERSION),
        _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
        _api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1, "BCF"),
        _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, "BC"),
        _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, "BCF"),
        _api(ApiKey.VOTE, 0, 2, 0, "C"),
        _api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 1, "C"),
        _api(ApiKey.END_QUORUM_EPOCH, 0, 1, 1, "C"),
        _api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0, "BCF"),
        _api(ApiKey.ALTER_PARTITION, 2, 3, 0, "C"),
        _api(ApiKey.UPDATE_FEATURES, 0, 2, 0, "BCF"),
        _api(ApiKey.ENVELOPE, 0, 0, 0, "C"),
        _api(ApiKey.FETCH_SNAPSHOT, 0, 1, 0, "C"),
        _api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, "BC"),
        _api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
        _api(ApiKey.BROKER_REGISTRATION, 0, 4, 0, "C"),
        _api(ApiKey.BROKER_HEARTBEAT, 0, 2, 0, "C"),
        _api(ApiKey.UNREGISTER_BROKER, 0, 0, 0, "BCF"),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
        _api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
        _api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0, "CF"),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
        _api(ApiKey.CONTROLLER_REGISTRATION, 0, 0, 0, "C"),
        _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0),
        _api(ApiKey.PUSH_TELEMETRY, 0, 0, 0),
        _api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, 0, "C"),
        _api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
        _api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 1),
        _api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 1),
        _api(ApiKey.SHARE_FETCH, 1, 2, 1),
        _api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 1),
        _api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0, "BCF"),
        _api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0, "BCF"),
        _api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, 0, "C"),
        _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, 0),
        _api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, 0),
        _api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, 0),
        _api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, 0),
        _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, 0),
        _api(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 1, 0),
        _api(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 1, 0),
        _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
        _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
        _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
        _api(ApiKey.UNREGISTER_CONTROLLER, 0, 0, 0, "BCF"),
        _api(ApiKey.ALTER_DISKS, 0, 0, 0),
        _api(ApiKey.DESCRIBE_DISKS, 0, 0, 0),
        _api(ApiKey.REBUILD_REPLICAS, 0, 0, 0),
    )
)


# Module constants, because every request looks them up.
PRODUCE: Final = ApiKey.PRODUCE
FETCH: Final = ApiKey.FETCH
API_VERSIONS: Final = ApiKey.API_VERSIONS


def _class_of(key: int, suffix: str) -> type[Message]:
    name = APIS[key].name
    module = import_module(f"spindle.protocol.messages.{name}")
    title = "".join(part.capitalize() for part in name.split("_"))
    cls: type[Message] = getattr(module, title + suffix)
    return cls


_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def request_class(key: int) -> type[Message]:
    """Return the class of an API's request; its module is imported at first use."""
    cls = _requests.get(key)
    if cls is None:
        cls = _requests[key] = _class_of(key, "Request")
    return cls


def response_class(key: int) -> type[Message]:
    """Return the class of an API's response."""
    cls = _responses.get(key)
    if cls is None:
        cls = _responses[key] = _class_of(key, "Response")
    return cls


def request_header_version(key: int, version: int) -> int:
    """Return the header version of a request: 1, or 2 for flexible versions."""
    return 2 if version >= APIS[key].flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """Return the header version of a response: 0, or 1 for flexible versions.

    ApiVersions always answers with 0 (KIP-511).
    """
    return 1 if version >= APIS[key].flexible_from and key != API_VERSIONS else 0
