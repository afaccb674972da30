"""A consumer of the classic protocol that behaves as a client does, in a group of either kind."""

from contextlib import suppress
from struct import Struct
from typing import Final

from consumer_group_scenario import ConsumerScenario

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.group_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from spindle.protocol.messages.join_group import JoinGroupResponse

_VERSION: Final = Struct(">h")
_REJOIN: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.MEMBER_ID_REQUIRED,
)
_LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


def assignment_bytes(owned: dict[str, set[int]], version: int = 3, user_data: bytes = b"") -> bytes:
    value = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=sorted(indexes))
            for name, indexes in owned.items()
        ],
        user_data=user_data or None,
    )
    return _VERSION.pack(version) + encode(value, version)


def read_assignment(data: bytes) -> dict[str, set[int]]:
    (version,) = _VERSION.unpack_from(data)
    value, _ = decode(ConsumerProtocolAssignment, version, data, 2)
    return {t.topic: set(t.partitions) for t in value.assigned_partitions if t.partitions}


class ClassicConsumer:
    """One client. `owned` are the partitions that it reads; `step` sends what is due."""

    def __init__(
        self,
        s: ConsumerScenario,
        *topics: str,
        is_eager: bool = False,
        instance_id: str | None = None,
    ) -> None:
        self.s = s
        self.topics = topics or ("t",)
        self.is_eager = is_eager
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, set[int]] = {}
        self.joins = 0
        self._join: str | None = None
        self._sync: str | None = None
        self._must_join = True

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted((topic, p) for topic, indexes in self.owned.items() for p in indexes)

    def subscription(self) -> bytes:
        owned = [
            ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=sorted(indexes))
            for name, indexes in self.owned.items()
        ]
        value = ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=owned)
        return _VERSION.pack(3) + encode(value, 3)

    @property
    def name(self) -> str:
        return "range" if self.is_eager else "cooperative-sticky"

    def step(self) -> None:
        """Send the next request that is due, and do what the answers say."""
        if self._join is not None:
            if not self.s.waits(self._join):
                self._joined(self.s.answers[self._join])
        elif self._sync is not None:
            if not self.s.waits(self._sync):
                self._synced()
        elif self._must_join:
            self._send_join()
        else:
            code = self.s.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
            self._heard(code)

    def leave(self) -> None:
        if self.member_id:
            with suppress(ApiError):
                self.s.ask_leave((self.member_id, self.instance_id))

    def reconnect(self) -> None:
        """Send an open request again, because the coordinator has been replaced."""
        if self._join is not None or self._sync is not None:
            self._join = self._sync = None
            self._must_join = True

    def _send_join(self) -> None:
        self._must_join = False
        if self.is_eager:
            self.owned = {}
        self.joins += 1
        protocols = ((self.name, self.subscription()),)
        try:
            self._join = self.s.ask_join(
                self.member_id, protocols=protocols, instance_id=self.instance_id
            )
        except ApiError as error:
            self._heard(error.code)
            return
        if not self.s.waits(self._join):
            self._joined(self.s.answers[self._join])

    def _joined(self, response: JoinGroupResponse) -> None:
        self._join = None
        if response.error_code:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            self._heard(ErrorCode(response.error_code))
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        given = None
        if response.leader == self.member_id:
            given = self._assign(response)
        try:
            self._sync = self.s.ask_sync(
                self.member_id, self.generation, given, instance_id=self.instance_id
            )
        except ApiError as error:
            self._heard(error.code)
            return
        if not self.s.waits(self._sync):
            self._synced()

    def _assign(self, response: JoinGroupResponse) -> dict[str, bytes]:
        """Deal the partitions out in turn; one that another member still owns has to wait."""
        names = sorted(member.member_id for member in response.members)
        owners: dict[tuple[str, int], str] = {}
        for member in response.members:
            read, _ = decode(ConsumerProtocolSubscription, 3, member.metadata, 2)
            for owned_topic in read.owned_partitions:
                for partition in owned_topic.partitions:
                    owners[owned_topic.topic, partition] = member.member_id
        given: dict[str, dict[str, set[int]]] = {name: {} for name in names}
        turn = 0
        for topic in self.topics:
            for partition in range(len(self.s.topics.by_name[topic].partitions)):
                name = names[turn % len(names)]
                turn += 1
                if owners.get((topic, partition), name) == name:
                    given[name].setdefault(topic, set()).add(partition)
        return {name: assignment_bytes(owned) for name, owned in given.items()}

    def _synced(self) -> None:
        assert self._sync is not None
        response = self.s.synced(self._sync)
        self._sync = None
        if response.error_code:
            self._heard(ErrorCode(response.error_code))
            return
        assigned = read_assignment(response.assignment)
        revoked = [p for p in self.partitions if p[1] not in assigned.get(p[0], ())]
        self.owned = assigned
        # A cooperative member joins again to tell that it has given up partitions.
        self._must_join = bool(revoked) and not self.is_eager

    def _heard(self, code: ErrorCode) -> None:
        if code in _LOST:
            self.member_id, self.generation, self.owned = "", -1, {}
            self._must_join = True
        elif code in _REJOIN:
            self._must_join = True
        else:
            assert code is ErrorCode.NONE, code
