"""Random requests that look like real ones: every field of every version, extremes included.

The name of a field decides its values (topics, partitions, groups, members, times), so that many
requests pass the first checks. `Known` keeps topic ids, members and sessions from the node's
answers, and later requests use them.
"""

from random import Random
from typing import Any, Final

from spindle.protocol.codec import encode
from spindle.protocol.message import Field, Message
from spindle.protocol.messages.group_protocol import ConsumerProtocolSubscription
from spindle.protocol.records.builder import SimpleRecord, build_batch

TOPICS: Final = tuple(f"fuzz-{number}" for number in range(8))
DELETABLE_TOPICS: Final = TOPICS[6:]
"""The other topics stay, so that most requests find their topic."""
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
"""The cluster id of the node that a run starts itself."""
_QUORUM_REQUESTS: Final = ("Vote", "BeginQuorum", "EndQuorum", "FetchSnapshot", "DescribeQuorum")
GROUPS: Final = ("fuzz-group-a", "fuzz-group-b", "fuzz-group-c")
TRANSACTIONAL_IDS: Final = ("fuzz-txn-a", "fuzz-txn-b", "fuzz-txn-c")
USERS: Final = ("admin", "canary", "stranger")
"""The users of a secured node."""
LONG_TEXT: Final = "y" * 32_000
STRANGE_TEXTS: Final = (
    "",
    ".",
    "..",
    "a/b",
    "../../etc/passwd",
    "x" * 249,
    "x" * 250,
    "é\u0000\U0001f600",
    "__consumer_offsets",
    "__cluster_metadata",
    "__transaction_state",
    "%s %d {} \r\n",
    LONG_TEXT,
    "z" * 32_767,
)
_CONFIG_KEYS: Final = (
    "retention.ms",
    "segment.bytes",
    "cleanup.policy",
    "compression.type",
    "min.insync.replicas",
    "message.timestamp.type",
    "max.message.bytes",
    "no.such.key",
)
_CONFIG_VALUES: Final = (
    "1", "-1", "", "compact", "delete", "compact,delete", "zstd", "LogAppendTime", "1048576",
    "9223372036854775808", "1e3", "true", "\u0660",
)  # fmt: skip
_RANGES: Final = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_OLD_FORM: Final = "v3_and_below_"
"""Begins the names of fields that AddPartitionsToTxn has twice."""
_TIMES: Final = ("max_wait_ms", "timeout_ms", "rebalance_timeout_ms", "session_timeout_ms")
_MAX_FINITE_MS: Final = 400
_MOSTLY: Final = {
    "acks": (-1, 1, 0),
    "session_timeout_ms": (100, 300, 6_000),
    "replica_id": (-1,),
    "current_leader_epoch": (-1, -1, 0),
    "fetch_offset": (0, 0, 1, 5),
    "max_bytes": (1 << 20, 1 << 20, 1, 2**31 - 1),
    "partition_max_bytes": (1 << 20, 1 << 20, 1, 2**31 - 1),
    "min_bytes": (0, 1, 1, 2**31 - 1),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_700_000_000_000),
    "generation_id_or_member_epoch": (-1, 0, 1),
    "iterations": (4096, 4096, 16_384, 2**31 - 1),
    "operation": (2, 3, 4, 8),
    "permission_type": (3, 3, 2, 1),
    "resource_pattern_type": (3, 3, 4),
    "pattern_type_filter": (1, 2, 3, 4),
}
"""Values with which most requests pass the first checks."""
_PARTITIONS: Final = frozenset(
    ("partition", "partitions", "partition_index", "index", "partition_indexes", "partition_id")
)
_COUNTS: Final = (0, 0, 1, 1, 1, 1, 2, 2, 3, 7)


class Known:
    """Names and ids from the node's answers, for later requests."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self.numbers: dict[str, int] = {}
        self.member_ids: list[str] = []

    def learn(self, response: Any) -> None:
        """Keep the names and ids of an answer."""
        for name in ("session_id", "producer_id", "producer_epoch", "generation_id"):
            value = getattr(response, name, None)
            if isinstance(value, int) and value >= 0:
                self.numbers[name] = value
        member_id = getattr(response, "member_id", None)
        if isinstance(member_id, str) and member_id:
            self.member_ids = [*self.member_ids[-7:], member_id]


class Values:
    """Random values of one request."""

    def __init__(self, random: Random, known: Known) -> None:
        self.random = random
        self.known = known

    def message(self, cls: type[Message], version: int, depth: int = 0) -> Message:
        """Return a message with random content that can be encoded at `version`."""
        fields = {
            field.name: self._field(cls, field, version, depth)
            for field in cls.FIELDS
            if field.first <= version <= field.last
            # Tagged fields have special meanings: mostly leave them out.
            and (version < field.tagged or self.random.random() < 0.2)
        }
        return cls(**fields)

    def _field(self, cls: type[Message], field: Field, version: int, depth: int) -> Any:
        if version >= field.nullable and self.random.random() < 0.12:
            return None
        if not field.is_array:
            return self._one(cls, field, version, depth)
        count = self.random.choice(_COUNTS)
        if self.random.random() < 0.01 and isinstance(field.type, str):
            count = 2000
        return [self._one(cls, field, version, depth + 1) for _ in range(count)]

    def _one(self, cls: type[Message], field: Field, version: int, depth: int) -> Any:
        kind = field.type
        if not isinstance(kind, str):
            return self.message(kind, version, depth)
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "float64":
            return self.random.choice((0.0, 1.5, -1.0, 1e308, float("inf"), float("nan")))
        if kind == "uuid":
            return self._uuid(cls)
        if kind == "records":
            return self.records()
        if kind == "bytes":
            return self._bytes()
        if kind == "string":
            return self._text(cls, field.name)
        return self._number(field, kind)

    def _number(self, field: Field, kind: str) -> int:
        random = self.random
        low, high = _RANGES[kind]
        if field.name in _MOSTLY and random.random() < 0.8:
            return random.choice(_MOSTLY[field.name])
        if field.name in _TIMES or field.name.endswith("_timeout_ms"):
            # A session has a limit. Other requests could correctly wait that long for their answer.
            most = high if field.name == "session_timeout_ms" else _MAX_FINITE_MS
            return random.choice((low, -1, 0, 1, most, random.randrange(_MAX_FINITE_MS)))
        known = self.known.numbers.get(field.name.removeprefix(_OLD_FORM))
        if known is not None and random.random() < 0.7:
            return max(low, min(high, known))
        if field.name in _PARTITIONS and random.random() < 0.8:
            return random.choice((0, 0, 0, 1, 2))
        if field.name in ("num_partitions", "count"):
            return random.choice((-1, 0, 1, 2, 3, 10_001, low, high))
        if field.name == "replication_factor":
            return random.choice((-1, 1, 1, 1, 0, 2, low, high))
        if field.name in ("key_type", "config_operation", "resource_type", "endpoint_type"):
            return random.choice((-1, 0, 1, 2, 3, 4, 8, 16, 32, low, high))
        pick = random.random()
        if pick < 0.35 and isinstance(field.default, int):
            return int(field.default)
        if pick < 0.75:
            return random.choice((0, 0, 1, -1 if low < 0 else 0, 2, 100))
        if pick < 0.92:
            return random.choice((low, low + 1, high - 1, high))
        return random.randint(low, high)

    def _text(self, cls: type[Message], name: str) -> str:
        random = self.random
        if random.random() < 0.1:
            return random.choice(STRANGE_TEXTS)
        if name == "member_id" and cls.__name__ == "JoinGroupRequest" and random.random() < 0.6:
            return ""
        if name in ("member_id", "leader") and self.known.member_ids and random.random() < 0.8:
            return random.choice(self.known.member_ids)
        if "Config" in cls.__qualname__.rpartition(".")[2] and name in ("name", "value"):
            return random.choice(_CONFIG_KEYS if name == "name" else _CONFIG_VALUES)
        if "principal" in name or "ScramCredential" in cls.__qualname__:
            return self._user(name)
        if name == "cluster_id":
            return random.choice((CLUSTER_ID, CLUSTER_ID, "other"))
        if "transactional_id" in name:
            return random.choice(TRANSACTIONAL_IDS)
        if name in ("key", "coordinator_keys"):
            return random.choice((*GROUPS, *TRANSACTIONAL_IDS))
        if "group" in name:
            return random.choice(GROUPS)
        if name == "protocol_type":
            return random.choice(("consumer", "consumer", "consumer", "connect", ""))
        if name == "protocol_name" or cls.__name__ == "JoinGroupRequestProtocol":
            return random.choice(("range", "range", "range", "sticky", ""))
        if cls.__qualname__.startswith(_QUORUM_REQUESTS) and name in ("topic", "topic_name"):
            return random.choice(("__cluster_metadata", "__cluster_metadata", TOPICS[0]))
        if name in ("topic", "name", "topics", "topic_names", "resource_name", "topic_name"):
            return random.choice(TOPICS)
        if name == "value":
            return random.choice(_CONFIG_VALUES)
        return random.choice(("", "a", "range", "consumer", "fuzz", "user", "client-id", "1"))

    def _user(self, name: str) -> str:
        if name.endswith("principal_type"):
            return "User"
        user = self.random.choice(USERS)
        return f"User:{user}" if name in ("principal", "principal_filter") else user

    def _uuid(self, cls: type[Message]) -> bytes:
        names = DELETABLE_TOPICS if cls.__name__ == "DeleteTopicState" else TOPICS
        ids = [self.known.topic_ids[n] for n in names if n in self.known.topic_ids]
        pick = self.random.random()
        if ids and pick < 0.7:
            return self.random.choice(ids)
        if pick < 0.85:
            return self.random.choice((bytes(16), bytes(15) + b"\1", b"\xff" * 16))
        return self.random.randbytes(16)

    def _bytes(self) -> bytes:
        pick = self.random.random()
        if pick < 0.5:
            version = self.random.randrange(4)
            body = self.message(ConsumerProtocolSubscription, version)
            return version.to_bytes(2, "big") + encode(body, version)
        if pick < 0.7:
            return b""
        return self.random.randbytes(self.random.choice((1, 3, 40, 5000)))

    def records(self) -> bytes:
        """Return a record set: sound, with wrong fields, damaged, or random bytes."""
        random = self.random
        pick = random.random()
        if pick < 0.05:
            return b""
        if pick < 0.1:
            return random.randbytes(random.randrange(1, 300))
        count = random.choice((1, 1, 2, 5))
        records = [
            SimpleRecord(
                key=random.choice((None, b"", b"k", b"key" * 30)),
                value=random.choice((None, b"", b"v" * random.randrange(2000))),
                timestamp_ms=random.choice((-1, *3 * [1_700_000_000_000], 1 << 61)),
                headers=random.choice(((), (("h", b"x"), ("", None)))),
            )
            for _ in range(count)
        ]
        numbers = self.known.numbers
        has_producer = random.random() < 0.3
        data = build_batch(
            records,
            base_offset=random.choice((0, 0, 0, 1, -1, 1 << 40)),
            codec=random.choice((0, 0, 1, 2, 3, 4)),
            producer_id=numbers.get("producer_id", 7) if has_producer else -1,
            producer_epoch=random.choice((numbers.get("producer_epoch", 0), 0, -1, 3))
            if has_producer
            else -1,
            base_sequence=random.choice((0, 1, -1, 2**31 - 1)) if has_producer else -1,
            is_transactional=random.random() < (0.5 if has_producer else 0.05),
            is_control=random.random() < 0.03,
        )
        if pick < 0.6:
            return data
        if pick < 0.7:
            return data * 2
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 4))):
            changed[random.randrange(len(changed))] = random.choice((0, 1, 127, 128, 255))
        return bytes(changed[: random.choice((len(changed), random.randrange(len(changed) + 1)))])
