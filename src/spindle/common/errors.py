"""Kafka's error codes and the exceptions that carry an outcome through Spindle.

An expected outcome is an `ErrorCode` *value* in a result. An exception is for a request refused as
a whole (`ApiError`), a peer that broke the protocol (`ProtocolViolation`), a dead disk
(`LogDirectoryFailed`) or bad bytes at rest (`CorruptLog`).
"""

import errno
from enum import IntEnum


class ErrorCode(IntEnum):
    """The codes of the Kafka protocol, by their published names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136

    @classmethod
    def _missing_(cls, value: object) -> "ErrorCode":
        """Map a code of a newer peer to a known one, so that its answer can be read."""
        return cls.UNKNOWN_SERVER_ERROR


RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""The codes after which a client may send the same request again."""


class ApiError(Exception):
    """A request, or one element of it, refused with a code and a text for the caller.

    Raised by decisions and handlers; the dispatcher turns it into the error answer of the request.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


class ProtocolViolation(Exception):
    """The peer sent bytes that are not a valid request; its connection is closed."""


class UnsupportedMetadata(ProtocolViolation):
    """The metadata log is of a release whose feature levels or records this one may misread.

    Its bytes are whole: another release reads them.

    Args:
        finding: names the level or the record, and what this release knows.
        remedy: a sentence without its full stop.
    """

    def __init__(
        self,
        finding: str,
        remedy: str = "Start a release of Spindle, or of Kafka, that knows it on these log "
        "directories; their records stay as they are",
    ) -> None:
        super().__init__(f"{finding}. {remedy}")
        self.finding = finding


class CorruptRecords(Exception):
    """A record batch from the wire is malformed."""


class RecordsTooLarge(CorruptRecords):
    """The records of a batch unpack to more bytes than the reader allows."""


class CorruptLog(Exception):
    """Bytes of a file are malformed. It names file, position and finding."""

    def __init__(self, path: str, position: int, finding: str) -> None:
        super().__init__(path, position, finding)
        self.path = path
        self.position = position
        self.finding = finding

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.finding}"


class ShortRead(Exception):
    """A file ends before bytes that it had, because another program has cut it."""

    def __init__(self, path: str, position: int) -> None:
        super().__init__(path, position)
        self.path = path
        self.position = position

    def __str__(self) -> str:
        return f"{self.path} ends at byte {self.position}, before the end of its batches"


def is_out_of_descriptors(error: object) -> bool:
    """Return whether an operation failed because the process or the system has no descriptors."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class LogDirectoryFailed(Exception):
    """An I/O error took a log directory offline (KIP-112, KIP-858).

    It stays so until it is brought back online, or until a restart.

    Attributes:
        at_ms: when it failed, in ms since the epoch; 0 if that is unknown.
    """

    def __init__(self, path: str, cause: BaseException | str, at_ms: int = 0) -> None:
        super().__init__(path, cause)
        self.path = path
        self.cause = cause
        self.at_ms = at_ms

    def __str__(self) -> str:
        text = f"log directory {self.path} failed: {self._cause_text(in_words=True)}"
        if self.is_fault_of_process:
            text += (
                "; the disk is in order, but the process could open no file: "
                "raise the limit with `ulimit -n` or LimitNOFILE"
            )
        return text

    @property
    def is_fault_of_process(self) -> bool:
        """True if the disk is in order, but the process could open no more files."""
        return is_out_of_descriptors(self.cause)

    @property
    def reason(self) -> str:
        """The cause in a few words, such as `EIO while writing t-3/00000000000000000000.log`."""
        return self._cause_text(in_words=False)

    def _cause_text(self, *, in_words: bool) -> str:
        """Return the cause, with paths inside of the directory.

        Args:
            in_words: `Input/output error (EIO)` in place of `EIO`.
        """
        cause = self.cause
        if not isinstance(cause, OSError) or cause.errno is None:
            text = str(cause)
        else:
            text = errno.errorcode.get(cause.errno, f"error {cause.errno}")
            if in_words and cause.strerror:
                text = f"{cause.strerror} ({text})"
            notes: list[str] = getattr(cause, "__notes__", [])
            if notes:
                text = f"{text} {notes[0]}"
            elif cause.filename is not None:
                text = f"{text} on {cause.filename}"
        return text.replace(f"{self.path}/", "").replace(self.path, "the directory")


class ConfigError(Exception):
    """A configuration that cannot be used. The text names key, value and what is allowed."""


def error_code(error: BaseException) -> ErrorCode:
    """Return the error code for a client whose append or read failed."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, LogDirectoryFailed):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(error, CorruptLog):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.UNKNOWN_SERVER_ERROR
