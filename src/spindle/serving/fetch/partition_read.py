"""One partition of a Fetch: checks, read limit and response."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.disks.log_directory import LogDirectory
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.log import Log
from spindle.log.segments.file_range import FileRange
from spindle.protocol import versions
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.records.batch import batches
from spindle.protocol.sentinels import NO_OFFSET, READ_COMMITTED
from spindle.replicas.partition import Partition
from spindle.replication.fetch_session import FetchedPartition
from spindle.serving.context import RequestContext
from spindle.serving.fetch.fetch_states import ReadState
from spindle.serving.permissions import may_use_cluster, may_use_topic
from spindle.serving.read_replicas import preferred_read_replica
from spindle.serving.services import BrokerServices

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

_NO_DIVERGENCE: Final = PartitionData.EpochEndOffset()
_SAME_LEADER: Final = PartitionData.LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = PartitionData.SnapshotId()
_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_AHEAD_ERRORS: Final = (
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors of a follower whose metadata is newer than this broker's."""


class Found(NamedTuple):
    """The result of a read; `aborted` are the transactions whose records consumers skip."""

    records: memoryview | FileRange
    aborted: Sequence[AbortedTransaction]


ReadResult: TypeAlias = Found | ApiError | None
"""None if the response had no room left."""


class FetchRequester(NamedTuple):
    """The client of a fetch.

    Attributes:
        replica_id: broker id of the follower; -1 for a consumer.
        broker_epoch: broker epoch of the follower; -1 if the version has none (KIP-903).
        listener: name of the listener that received the request.
        rack: rack of a consumer; "" if it names none (KIP-392).
        is_committed: True if a consumer reads only committed transactions (KIP-98).
        is_replica: True for a follower.
        needs_leader: True for followers, and for consumers of versions without follower fetching.
        context: the request, for its principal.
    """

    replica_id: int
    broker_epoch: int
    api_version: int
    listener: str
    rack: str
    is_committed: bool
    is_replica: bool
    needs_leader: bool
    context: RequestContext


def fetcher_of(context: RequestContext, request: FetchRequest) -> FetchRequester:
    """Return the client of a request."""
    version = context.api_version
    if version >= versions.FETCH_REPLICA_STATE:
        state = request.replica_state
        replica_id, broker_epoch = state.replica_id, state.replica_epoch
    else:
        replica_id, broker_epoch = request.replica_id, -1
    is_replica = replica_id >= 0
    return FetchRequester(
        replica_id,
        broker_epoch,
        version,
        context.listener,
        request.rack_id,
        request.isolation_level == READ_COMMITTED and not is_replica,
        is_replica,
        is_replica or version < versions.FETCH_FROM_FOLLOWER,
        context,
    )


class PartitionRead:
    """One partition of a fetch: its read limits and its response.

    Attributes:
        name: the topic; "" while a topic id is unknown here.
        end_offset: the offset up to which this client may read (exclusive).
        state: READABLE until `prepare` decides otherwise.
    """

    __slots__ = (
        "data",
        "end_offset",
        "name",
        "partition",
        "state",
        "wanted",
    )

    def __init__(self, wanted: FetchedPartition, name: str) -> None:
        self.wanted = wanted
        self.name = name
        self.partition: Partition | None = None
        self.end_offset = -1
        self.state = ReadState.READABLE
        self.data = PartitionData(
            partition_index=wanted.key.partition,
            high_watermark=-1,
            diverging_epoch=_NO_DIVERGENCE,
            current_leader=_SAME_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            aborted_transactions=None,
            records=b"",
        )

    @property
    def directory(self) -> LogDirectory:
        """Return the current directory of the log."""
        assert self.partition is not None
        return self.partition.directory

    @property
    def has_data(self) -> bool:
        """Return True if records are available for this client."""
        return self.state.can_read and self.wanted.fetch_offset < self.end_offset

    @property
    def largest_batch(self) -> int:
        """Return the maximum size of a batch."""
        return 0 if self.partition is None else self.partition.log.config.max_message_bytes

    @property
    def is_settled(self) -> bool:
        """Return True if the partition need not be checked before its next event."""
        return self.state.can_settle and self.wanted.fetch_offset >= self.end_offset

    @property
    def counted_bytes(self) -> int:
        """Return the bytes that count towards `min_bytes`.

        If the partition has more than its limit, return the limit, even if it falls into a batch,
        which is then left out: waiting would not add to it.
        """
        records = self.data.records or b""
        next_offset = self.end_offset
        for _, header in batches(records):
            next_offset = header.next_offset
        if next_offset < self.end_offset:
            return max(len(records), self.wanted.max_bytes)
        return len(records)

    def fail(self, code: ErrorCode) -> None:
        """Answer with `code` instead of records."""
        self.data.error_code = code
        self.state = ReadState.REFUSED

    def refuse(self, code: ErrorCode, services: BrokerServices, fetcher: FetchRequester) -> None:
        """Return the error; a follower whose metadata is newer than this broker's waits instead.

        The error of a lost leadership names the new leader (KIP-951).
        """
        if fetcher.is_replica and (
            code in _AHEAD_ERRORS
            or services.replicas.is_expected(self.name, self.wanted.key.partition)
        ):
            self.data.error_code = code
            self.state = ReadState.AHEAD
            return
        self.fail(code)
        self._name_leader(services, fetcher)

    def give_up_waiting(self) -> None:
        """Return the error to a follower whose metadata is still newer than this broker's."""
        if self.state is ReadState.AHEAD:
            self.state = ReadState.REFUSED

    # -- deciding

    def prepare(self, services: BrokerServices, fetcher: FetchRequester) -> None:
        """Decide on error, positions and the offset up to which the client may read.

        Take a follower's fetch offset as its acknowledgement, which may move the high watermark.
        """
        if services.authorizer.is_active and not self._is_allowed(services, fetcher):
            self.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            self.data.aborted_transactions = []
            return
        if fetcher.api_version >= versions.FETCH_TOPIC_IDS and not self.name:
            self.refuse(ErrorCode.UNKNOWN_TOPIC_ID, services, fetcher)
            self.data.aborted_transactions = []
            return
        partition = self._find(services, fetcher)
        if partition is None:
            return
        wanted, log = self.wanted, partition.log
        asks_for_rack = services.is_rack_aware and fetcher.rack and not fetcher.is_replica
        if asks_for_rack and self._is_sent_elsewhere(services, fetcher, partition):
            return
        if (
            fetcher.api_version >= versions.FETCH_DIVERGING_EPOCH
            and wanted.last_fetched_epoch >= 0
            and self._diverges(log)
        ):
            return
        if fetcher.is_replica and wanted.is_progress_new and self._has_offset(log):
            wanted.is_progress_new = False
            self._take_progress(partition, fetcher)
        self.take_offsets(services, fetcher)
        # The replica in the consumer's rack may be a better choice at any later look.
        wanted.is_checked = not asks_for_rack

    def _is_allowed(self, services: BrokerServices, fetcher: FetchRequester) -> bool:
        """Return True if the sender may read the topic; followers may read all topics or none.

        An unknown topic id has no name, and any consumer may know that it is unknown.
        """
        if fetcher.is_replica:
            return may_use_cluster(services, fetcher.context, Operation.CLUSTER_ACTION)
        return not self.name or may_use_topic(services, fetcher.context, Operation.READ, self.name)

    def take_offsets(self, services: BrokerServices, fetcher: FetchRequester) -> None:
        """Compute the offset up to which the client may read, in a readable partition."""
        partition, data = self.partition, self.data
        assert partition is not None
        log = partition.log
        if not self._has_offset(log):
            self.fail(ErrorCode.OFFSET_OUT_OF_RANGE)
            self._hide_positions()
            return
        self._report_positions(partition)
        self.state = ReadState.READABLE
        if fetcher.is_replica:
            self.end_offset = log.log_end_offset
            if partition.is_throttled_as_leader and self._is_throttled(
                services, partition, fetcher
            ):
                self.state = ReadState.THROTTLED
            elif self._must_report_positions():
                self.state = ReadState.POSITIONS_CHANGED
        elif fetcher.is_committed:
            self.end_offset = data.last_stable_offset
            data.aborted_transactions = []
        else:
            self.end_offset = data.high_watermark

    def _has_offset(self, log: Log) -> bool:
        return log.log_start_offset <= self.wanted.fetch_offset <= log.log_end_offset

    def _is_sent_elsewhere(
        self, services: BrokerServices, fetcher: FetchRequester, partition: Partition
    ) -> bool:
        """Redirect a consumer to a replica in its rack; return False if there is none."""
        self.data.preferred_read_replica = preferred_read_replica(
            partition,
            services.metadata.image,
            fetcher.listener,
            fetcher.rack,
            self.wanted.fetch_offset,
        )
        if self.data.preferred_read_replica < 0:
            return False
        self._report_positions(partition)
        self.state = ReadState.REFUSED
        return True

    def _find(self, services: BrokerServices, fetcher: FetchRequester) -> Partition | None:
        """Return the partition if this client may read it; otherwise set the error."""
        replicas, key = services.replicas, self.wanted.key
        partition = replicas.lookup(self.name, key.partition)
        self.wanted.attach(partition)
        if partition is None:
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            code = replicas.absent_error(self.name, key.partition, missing)
            self.refuse(code, services, fetcher)
            self.data.aborted_transactions = []
            return None
        self.partition = partition
        if key.topic_id not in (ZERO_UUID, partition.topic_id):
            self.fail(ErrorCode.INCONSISTENT_TOPIC_ID)
            return None
        epoch = self.wanted.current_leader_epoch
        code = replicas.local_leader_error(partition, epoch, needs_leader=fetcher.needs_leader)
        if not code and fetcher.is_replica:
            code = partition.replica_error(fetcher.replica_id, fetcher.broker_epoch, epoch)
        if code:
            self.refuse(code, services, fetcher)
            return None
        return partition

    def _take_progress(self, partition: Partition, fetcher: FetchRequester) -> None:
        """Record that the follower has all records below its fetch offset."""
        wanted = self.wanted
        partition.follower_fetched(
            fetcher.replica_id,
            wanted.fetch_offset,
            wanted.fetcher_log_start_offset,
            fetcher.broker_epoch,
            wanted.session,
        )

    def _is_throttled(
        self, services: BrokerServices, partition: Partition, fetcher: FetchRequester
    ) -> bool:
        """Return True for a follower out of sync while the throttle is exceeded (KIP-73)."""
        return (
            partition.leader is not None
            and fetcher.replica_id not in partition.leader.isr
            and services.leader_throttle.is_exceeded
        )

    def _must_report_positions(self) -> bool:
        """Return True if the leader's positions must reach this follower at once.

        DeleteRecords waits for the log start; consumers that read from the follower wait for its
        high watermark (KIP-392).
        """
        wanted, data = self.wanted, self.data
        if wanted.log_start_offset not in (NO_OFFSET, data.log_start_offset):
            return True
        return (
            wanted.session.serves_consumers
            and wanted.high_watermark != NO_OFFSET
            and wanted.high_watermark != data.high_watermark
        )

    def _diverges(self, log: Log) -> bool:
        """Return True if the follower's log diverges: the response has the offset (KIP-595)."""
        wanted, data = self.wanted, self.data
        end = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if end.epoch < 0 or wanted.fetch_offset < log.log_start_offset:
            self.fail(ErrorCode.OFFSET_OUT_OF_RANGE)
            return True
        if end.epoch < wanted.last_fetched_epoch or end.offset < wanted.fetch_offset:
            data.diverging_epoch = PartitionData.EpochEndOffset(
                epoch=end.epoch, end_offset=end.offset
            )
            self.state = ReadState.REFUSED
            return True
        return False

    def _report_positions(self, partition: Partition) -> None:
        data, log = self.data, partition.log
        data.high_watermark = high_watermark = partition.high_watermark
        data.last_stable_offset = min(log.first_unstable_offset, high_watermark)
        data.log_start_offset = log.log_start_offset

    def _hide_positions(self) -> None:
        """Omit the log's offsets from a response without records, as Kafka does."""
        data = self.data
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1

    def _name_leader(self, services: BrokerServices, fetcher: FetchRequester) -> None:
        """Name the new leader, which saves the client a metadata request (KIP-951)."""
        data = self.data
        if (
            data.error_code in _LEADER_ERRORS
            and fetcher.api_version >= versions.FETCH_NODE_ENDPOINTS
        ):
            leader, epoch = services.replicas.leader_of(self.name, self.wanted.key.partition)
            data.current_leader = PartitionData.LeaderIdAndEpoch(
                leader_id=leader, leader_epoch=epoch
            )

    # -- what was read

    def take(self, result: ReadResult) -> int:
        """Store the result of the directory's thread; return the size of its records in bytes."""
        if result is None:
            return 0
        if isinstance(result, ApiError):
            self.fail(result.code)
            return 0
        # The codec hands large records on as they are, so a range of a file can stand for them.
        self.data.records = cast(memoryview, result.records)
        if self.data.aborted_transactions is not None:
            self.data.aborted_transactions = [
                PartitionData.AbortedTransaction(
                    producer_id=t.producer_id, first_offset=t.first_offset
                )
                for t in result.aborted
            ]
        return len(result.records)

    def restore(self) -> None:
        """Drop the records that were read; they are read again together with more."""
        self.data.records = b""
        if self.data.aborted_transactions:
            self.data.aborted_transactions = []
