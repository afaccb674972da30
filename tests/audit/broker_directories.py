"""Log directories for audits, written by Spindle's own log, with every kind of file in them."""

import random
from hashlib import md5
from pathlib import Path

from log_builders import end_transaction, verified

from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import TopicPartition
from spindle.disks.directory_store import DirectoryStore
from spindle.log.formats.meta_properties import MetaProperties, write_meta_properties
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.protocol.records.builder import SimpleRecord, build_batch

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PLAIN = TopicPartition("orders", 0)
TRANSACTIONAL = TopicPartition("payments", 3)
COMPACTED = TopicPartition("states", 1)
CONFIG = LogConfig(segment_bytes=6000, segment_index_bytes=2400, index_interval_bytes=300)
NOW_MS = 1_700_000_000_000
CODECS = (0, 1, 2, 3, 4)


class BrokerDirectory:
    """A log directory that a broker without a network fills. Its times rise with each batch."""

    def __init__(self, path: Path, *, node_id: int = 1, seed: int = 0) -> None:
        path.mkdir(parents=True)
        self.path = path
        self.random = random.Random(seed)
        self.files = OsFileSystem()
        self.store = DirectoryStore(self.files, str(path))
        self.now_ms = NOW_MS
        self.broker_epoch = 10 + node_id
        self.directory_id = md5(str(path).encode()).digest()
        properties = MetaProperties(
            cluster_id=CLUSTER_ID, node_id=node_id, directory_id=self.directory_id
        )
        write_meta_properties(self.files, str(path), properties, NOW_MS)
        self.load()

    def load(self) -> None:
        self.store.load(lambda topic: CONFIG, self.now_ms)
        self.store.settle_missing(())  # as after the first metadata

    def create(self, partition: TopicPartition) -> Log:
        topic_id = bytes([len(partition.topic)] * 16)
        return self.store.create(partition, topic_id, CONFIG, self.now_ms)

    def append(
        self,
        log: Log,
        count: int,
        *,
        epoch: int = 0,
        producer_id: int = -1,
        sequence: int = -1,
        is_transactional: bool = False,
    ) -> None:
        """Append a batch of `count` records, compressed or not."""
        self.now_ms += self.random.randrange(1, 50)
        records = [
            SimpleRecord(b"key-%d" % self.random.randrange(9), self.random.randbytes(30), at)
            for at in range(self.now_ms - count, self.now_ms)
        ]
        data = build_batch(
            records,
            codec=self.random.choice(CODECS),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        log.append_as_leader(data, epoch, self.now_ms, terms=verified(log, data))

    def fill_plain(self, batches: int = 60) -> Log:
        """Write a log of several leader epochs, with an idempotent producer among others."""
        log = self.create(PLAIN)
        sequence = 0
        for number in range(batches):
            count = self.random.randrange(1, 20)
            epoch = number // 20
            if number % 3:
                self.append(log, count, epoch=epoch)
            else:
                self.append(log, count, epoch=epoch, producer_id=7, sequence=sequence)
                sequence += count
        return log

    def fill_transactional(self, rounds: int = 40) -> Log:
        """Write a log of transactions of two producers, every third of them aborted."""
        log = self.create(TRANSACTIONAL)
        sequences = {21: 0, 22: 0}
        for number in range(rounds):
            for producer_id in sequences:
                count = self.random.randrange(1, 9)
                self.append(
                    log,
                    count,
                    producer_id=producer_id,
                    sequence=sequences[producer_id],
                    is_transactional=True,
                )
                sequences[producer_id] += count
            for producer_id in sequences:
                end_transaction(log, producer_id, is_commit=(number + producer_id) % 3 != 0)
        return log

    def high_watermarks(self) -> None:
        for log in self.store.all_logs():
            log.update_high_watermark(log.log_end_offset)

    def close(self) -> None:
        """Close all logs in order, as a broker's stop does."""
        self.high_watermarks()
        self.store.close(self.broker_epoch)


def clean_directory(path: Path, seed: int = 0, *, node_id: int = 1) -> Path:
    """Write a directory with a plain and a transactional log, and close it."""
    directory = BrokerDirectory(path, node_id=node_id, seed=seed)
    directory.fill_plain()
    directory.fill_transactional()
    directory.close()
    return path
