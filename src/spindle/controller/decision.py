"""The inputs of a controller operation besides the request, and its result."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from spindle.authorization.access import FULL_ACCESS, Access
from spindle.common.ports import RandomSource
from spindle.common.uuids import UuidSource
from spindle.config.describe import DescribedConfig
from spindle.controller.broker_sessions import BrokerHeartbeatManager
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.security.secret import Secret

R = TypeVar("R")

ANONYMOUS: Final = "User:ANONYMOUS"

MAX_RECORDS_PER_OPERATION: Final = 10_000
"""An operation with more records is split over batches, or refused if it must be atomic."""


ChargePartitions = Callable[[int], None]
"""Called with the number of partitions to create or delete; raises ApiError
THROTTLING_QUOTA_EXCEEDED if the client's `controller_mutation_rate` is exhausted (KIP-599)."""


def no_quota(count: int) -> None:
    """Charge nothing: the client has no quota."""


@dataclass(slots=True)
class Decision(Generic[R]):
    """Records to append, and the response to send once they are committed.

    `is_atomic` keeps the records in one batch. `on_append` gets the offset of the last record as
    soon as it is known, for soft state that depends on it. `kraft_version` is the level to which
    the quorum must be raised before the records are appended. `leaves_elections`: more
    elections are due than these records contain.
    """

    response: R
    records: list[Message] = field(default_factory=list)
    is_atomic: bool = False
    on_append: Callable[[int], None] | None = None
    kraft_version: int | None = None
    leaves_elections: bool = False


class ConfigRules(Protocol):
    """Port: the controller's questions about configuration keys."""

    def validate(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        """Check all values that a resource would have after the change.

        Raises:
            ApiError: INVALID_CONFIG or INVALID_REQUEST, naming key and value.
        """
        ...

    def is_list(self, resource_type: int, name: str) -> bool:
        """Return whether APPEND and SUBTRACT apply to the key."""
        ...

    def default(self, resource_type: int, name: str) -> str | None:
        """Return the value without a dynamic one, the base of APPEND and SUBTRACT."""
        ...

    def effective_topic_configs(
        self,
        values: Mapping[str, str],
        default_broker: Mapping[str, str],
        broker: Callable[[int], Mapping[str, str]],
    ) -> Sequence[DescribedConfig]:
        """Return all effective values of a topic with these dynamic values on this controller."""
        ...


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The keys `delegation.token.*` of a node whose delegation tokens are enabled. Times in ms."""

    secret: Secret
    max_lifetime_ms: int
    expiry_time_ms: int
    expiry_check_interval_ms: int


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The part of the node's configuration that decisions depend on. Times in milliseconds."""

    node_id: int
    cluster_id: str
    default_replication_factor: int = 1
    num_partitions: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    broker_session_timeout_ms: int = 9000
    max_idle_interval_ms: int = 500
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    unclean_leader_election_interval_ms: int = 300_000
    delete_topic_enable: bool = True
    has_authorizer: bool = False
    delegation_tokens: TokenSettings | None = None
    controller_listener_names: tuple[str, ...] = ()
    static_voter_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The injected inputs of decisions: settings, configuration rules, new ids, randomness."""

    settings: ControllerSettings
    config_rules: ConfigRules
    new_uuid: UuidSource
    random: RandomSource


class Requester(NamedTuple):
    """The client of a request: its principal, and how it has logged in."""

    principal: str
    is_token: bool = False
    """True if the client has logged in with a delegation token."""

    @property
    def may_use_tokens(self) -> bool:
        """Whether the client may send token requests.

        It must have logged in, and not with a token: otherwise a token could create new ones
        forever.
        """
        return self.principal != ANONYMOUS and not self.is_token


@dataclass(frozen=True, slots=True)
class OperationContext:
    """The inputs of a decision. `image` includes records that are not committed yet."""

    image: MetadataImage
    heartbeats: BrokerHeartbeatManager
    context: ControllerContext
    api_version: int
    next_write_offset: int
    now_ms: int
    kraft_version: int
    wall_clock_ms: int
    is_own_process: bool
    """The request comes from the broker in this process."""
    is_forwarded: bool
    """A broker has already checked the request; False if a client sent it to a controller."""
    requester: Requester
    charge: ChargePartitions = no_quota
    access: Access = FULL_ACCESS
    """The rights of the sender; the rights for the whole request have already been checked."""
    unresolved_hosts: Collection[str] = ()
    """Host names in the request that could not be resolved."""


T = TypeVar("T", bound=Hashable)


def repeated(values: Iterable[T]) -> dict[T, None]:
    """Return the values that occur more than once, in order of their first occurrence."""
    counts: dict[T, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return {value: None for value, count in counts.items() if count > 1}
