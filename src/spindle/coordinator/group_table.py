"""The groups of one shard by id, in the order in which they were created."""

from collections.abc import Callable, Iterator

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.classic.classic_group import ClassicGroup
from spindle.coordinator.config import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.records import ConsumerGroupRecord, RecordKind
from spindle.coordinator.consumer.subscriptions import TopicsView
from spindle.coordinator.share.group_records import ShareGroupRecord, ShareRecordKind
from spindle.coordinator.share.share_group import ShareGroup
from spindle.coordinator.streams.records import StreamsGroupRecord, StreamsRecordKind
from spindle.coordinator.streams.streams_group import StreamsGroup
from spindle.metadata.topics import EMPTY_TOPICS


class GroupTable:
    """The groups, with what decisions about them depend on. Iteration yields classic groups.

    While records that change a group's protocol are being appended, both groups are there; the
    classic one decides.

    Attributes:
        config: settings of all groups.
        config_of: returns the settings that a consumer group has now.
        share_config_of: returns the settings that a share group has now.
        consumer: groups of the consumer protocol (KIP-848) by id.
        share: share groups (KIP-932) by id.
        streams_config_of: returns the settings that a streams group has now.
        streams: streams groups (KIP-1071) by id.
        streams_delays_ms: soft state: when a new streams group gets its first assignment.
        view: the topics of the latest request, for the timers that fire after it.
    """

    __slots__ = (
        "_groups",
        "config",
        "config_of",
        "consumer",
        "share",
        "share_config_of",
        "streams",
        "streams_config_of",
        "streams_delays_ms",
        "view",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        config_of: Callable[[str], ConsumerGroupConfig] | None = None,
        share_config_of: Callable[[str], ShareGroupConfig] | None = None,
        streams_config_of: Callable[[str], StreamsGroupConfig] | None = None,
    ) -> None:
        """Create an empty table; without functions all groups have the settings of `config`."""
        self.config = config
        self.config_of = config_of or (lambda _: config.consumer)
        self.share_config_of = share_config_of or (lambda _: config.share)
        self.consumer: dict[str, ConsumerGroup] = {}
        self.share: dict[str, ShareGroup] = {}
        self.streams_config_of = streams_config_of or (lambda _: config.streams)
        self.streams: dict[str, StreamsGroup] = {}
        self.streams_delays_ms: dict[str, int] = {}
        self.view = TopicsView(EMPTY_TOPICS, -1)
        self._groups: dict[str, ClassicGroup] = {}

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def serves_consumers(self, group_id: str) -> bool:
        """Return True if the group's members, classic ones too, belong to a consumer group."""
        group = self.consumer.get(group_id)
        return group is not None and bool(group.members) and group_id not in self._groups

    def check_has_offsets(self, group_id: str) -> None:
        """Raise ApiError GROUP_ID_NOT_FOUND for a share group, which commits no offsets."""
        if group_id in self.share:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )

    def create(self, group_id: str, now_ms: int | None) -> ClassicGroup:
        """Create an Empty group; there must be none with that id."""
        assert group_id not in self._groups, group_id
        group = ClassicGroup(group_id, now_ms)
        self._groups[group_id] = group
        return group

    def put(self, group: ClassicGroup) -> None:
        """Store a group that was read from a record, in place of an earlier one with its id."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> ClassicGroup | None:
        return self._groups.pop(group_id, None)

    def replay_consumer(self, record: ConsumerGroupRecord) -> None:
        """Apply a record of a consumer group; the first one creates the group."""
        group = self.consumer.get(record.group_id)
        if record.value is None:
            if group is None:
                return
            if record.kind is RecordKind.GROUP:
                del self.consumer[record.group_id]
                return
        elif group is None:
            group = self.consumer[record.group_id] = ConsumerGroup(record.group_id)
            self._remove_simple(record.group_id)
        group.replay(record)

    def _remove_simple(self, group_id: str) -> None:
        """Remove a group that existed only for the offsets, whose records came first."""
        group = self._groups.get(group_id)
        if group is not None and group.is_simple:
            del self._groups[group_id]

    def replay_share(self, record: ShareGroupRecord) -> None:
        """Apply a record of a share group; the first one creates the group."""
        group = self.share.get(record.group_id)
        if record.value is None:
            if group is None:
                return
            if record.kind is ShareRecordKind.GROUP:
                del self.share[record.group_id]
                return
        elif group is None:
            group = self.share[record.group_id] = ShareGroup(record.group_id)
        group.replay(record)

    def replay_streams(self, record: StreamsGroupRecord) -> None:
        """Apply a record of a streams group; the first one creates the group."""
        group = self.streams.get(record.group_id)
        if record.value is None:
            if group is None:
                return
            if record.kind is StreamsRecordKind.GROUP:
                del self.streams[record.group_id]
                return
        elif group is None:
            group = self.streams[record.group_id] = StreamsGroup(record.group_id)
            self._remove_simple(record.group_id)
        group.replay(record)

    def offset_owner(self, group_id: str) -> "ConsumerGroup | StreamsGroup | None":
        """Return the group whose members have epochs and commit offsets; None if there is none."""
        return self.consumer.get(group_id) or self.streams.get(group_id)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups) + len(self.consumer) + len(self.share) + len(self.streams)
