"""A leader that answers requests from its logs, and a follower with the real fetcher."""

from random import Random
from typing import Any

from spindle.common.errors import CorruptRecords, ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.log.errors import UnexpectedAppendOffset
from spindle.log.loading import create_log, load_log
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.sentinels import EARLIEST, LATEST
from spindle.replication.fetch_session import FetchSessionCache, SessionError
from spindle.replication.fetcher import (
    Fetcher,
    FetcherSettings,
    FindLeaderOffsets,
    FollowedPartition,
    Step,
)
from spindle.replication.follower_log import apply_leader_answer, begin_to_follow
from spindle.testing.filesystem import MemoryFileSystem

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
BACKOFF_MS = 1000
SMALL = LogConfig(segment_bytes=600, segment_index_bytes=240, index_interval_bytes=100)
SETTINGS = FetcherSettings(
    replica_id=2,
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=2000,
    partition_max_bytes=1000,
    backoff_ms=BACKOFF_MS,
)
VERSION = 17

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


def key(partition: int = 0) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, partition)


def new_log(partition: int = 0, files: MemoryFileSystem | None = None) -> Log:
    files = files or MemoryFileSystem()
    files.make_directories("/data")
    name = f"orders-{partition}"
    topic_partition = TopicPartition("orders", partition)
    storage = LogStorage(files, "/data")
    return create_log(storage, name, topic_partition, TOPIC_ID, SMALL, NOW_MS, 0)


def load_again(log: Log, files: MemoryFileSystem, recovery_point: int = 0) -> Log:
    """Load the log after an unclean stop."""
    name = log.path.rpartition("/")[2]
    return load_log(
        LogStorage(files, "/data"),
        name,
        log.topic_partition,
        LogConfig(),
        NOW_MS,
        is_clean=False,
        recovery_point=recovery_point,
    )


def append(log: Log, epoch: int, *values: str) -> None:
    records = [SimpleRecord(b"k", value.encode(), NOW_MS) for value in values]
    log.append_as_leader(build_batch(records), epoch, NOW_MS)


def commit(log: Log) -> None:
    log.update_high_watermark(log.log_end_offset)


def content(log: Log, offset: int | None = None) -> bytes:
    """Return all batches of the log, byte for byte, from the log start or `offset` on."""
    parts, offset = [], log.log_start_offset if offset is None else offset
    while offset < log.log_end_offset:
        records = log.read(offset, 1000, log.log_end_offset).records
        parts.append(bytes(records))
        offset = max(header.next_offset for _, header in batches(records))
    return b"".join(parts)


class Leader:
    """Answers fetches and offset look-ups from its logs. `errors` go out instead of data."""

    def __init__(self, *logs: Log, epoch: int = 0) -> None:
        self.logs = {log.topic_partition.partition: log for log in logs}
        self.epoch = epoch
        self.errors: dict[int, ErrorCode] = {}
        self.refusal = ErrorCode.NONE
        self.requests: list[FetchRequest] = []
        random = Random(1)
        self.sessions = FetchSessionCache(10, lambda: random.randrange(1, 1000))

    def answer(self, request: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        # Encode and decode, so that the leader sees only what the wire carries.
        request, _ = decode(FetchRequest, VERSION, encode(request, VERSION))
        self.requests.append(request)
        if self.refusal:
            return FetchResponse(error_code=self.refusal)
        try:
            context = self.sessions.open(request, VERSION, 0)
        except SessionError as error:
            return FetchResponse(error_code=error.code)
        response = FetchResponse(session_id=context.session_id)
        for wanted_key, wanted in context.partitions.items():
            data = self._fetch(wanted_key.partition, wanted)
            is_news = wanted.is_news(data.high_watermark, data.log_start_offset)
            if context.is_incremental and not (
                data.records or data.error_code or data.diverging_epoch.epoch >= 0 or is_news
            ):
                continue
            wanted.remember(data.high_watermark, data.log_start_offset)
            topic = FetchResponse.FetchableTopicResponse(topic_id=wanted_key.topic_id)
            topic.partitions.append(data)
            response.responses.append(topic)
        return response

    def _fetch(self, partition: int, wanted: Any) -> PartitionData:
        log = self.logs[partition]
        data = PartitionData(partition_index=partition, high_watermark=-1, records=b"")
        data.error_code = self.errors.get(partition, ErrorCode.NONE)
        if not data.error_code and wanted.current_leader_epoch != self.epoch:
            is_old = wanted.current_leader_epoch < self.epoch
            data.error_code = (
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        if data.error_code:
            return data
        if wanted.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if end.epoch < wanted.last_fetched_epoch or end.offset < wanted.fetch_offset:
                data.diverging_epoch = PartitionData.EpochEndOffset(
                    epoch=end.epoch, end_offset=end.offset
                )
                return data
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        data.high_watermark = log.high_watermark
        data.log_start_offset = log.log_start_offset
        data.records = log.read(wanted.fetch_offset, wanted.max_bytes, log.log_end_offset).records
        return data

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.replica_id == SETTINGS.replica_id
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            for asked in topic.partitions:
                log = self.logs[asked.partition_index]
                offset = {LATEST: log.log_end_offset, EARLIEST: log.log_start_offset}
                answers.partitions.append(
                    ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, offset=offset[asked.timestamp]
                    )
                )
        return response


class Follower:
    """A fetcher with its logs, driven by hand."""

    def __init__(self, *logs: Log) -> None:
        self.logs = {log.topic_partition.partition: log for log in logs}
        self.fetcher = Fetcher(SETTINGS)
        self.now_ms = 0

    def follow(self, epoch: int = 0, partition: int = 0) -> FollowedPartition:
        position = begin_to_follow(self.logs[partition], NOW_MS)
        followed = FollowedPartition("orders", key(partition), epoch, position)
        self.fetcher.add(followed)
        return followed

    def request(self, *, is_quota_exceeded: bool = False) -> FetchRequest | None:
        return self.fetcher.next_request(7, self.now_ms, is_quota_exceeded)

    def round(self, leader: Leader) -> bool:
        """Do one fetch and the work that follows; return False if there is nothing to fetch."""
        request = self.request()
        if request is None:
            return False
        steps = self.fetcher.on_response(leader.answer(request), self.now_ms) or []
        self.do([s for s in steps if not isinstance(s.work, FindLeaderOffsets)])
        lost = [s.partition for s in steps if isinstance(s.work, FindLeaderOffsets)]
        if lost:
            latest, earliest = (
                leader.answer(self.fetcher.offsets_request(lost, timestamp))
                for timestamp in (LATEST, EARLIEST)
            )
            self.do(self.fetcher.on_offsets(lost, latest, earliest, self.now_ms))
        return True

    def do(self, steps: list[Step]) -> None:
        for step in steps:
            log = self.logs[step.partition.key.partition]
            assert not isinstance(step.work, FindLeaderOffsets)
            try:
                position = apply_leader_answer(log, step.work, NOW_MS)
            except (CorruptRecords, UnexpectedAppendOffset):
                self.fetcher.on_refused(step, self.now_ms)
            else:
                self.fetcher.on_done(step, position, self.now_ms)

    def catch_up(self, leader: Leader, rounds: int = 30) -> None:
        """Fetch until every log equals the leader's, except that its start may be later."""
        for _ in range(rounds):
            if not self.round(leader):
                self.now_ms += BACKOFF_MS
            if all(
                log.log_start_offset >= its.log_start_offset
                and (log.log_end_offset, log.high_watermark)
                == (its.log_end_offset, its.high_watermark)
                and (
                    log.log_start_offset == log.log_end_offset
                    or log.epochs.latest == its.epochs.latest
                )
                for log, its in ((log, leader.logs[number]) for number, log in self.logs.items())
            ):
                return
        raise AssertionError(f"after {rounds} rounds: {self.logs} of {leader.logs}")
