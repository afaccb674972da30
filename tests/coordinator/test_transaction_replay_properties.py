"""A new coordinator that replays the log knows what the old one knew, also after compaction."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_scenario import LAST_EPOCH, P0, P1, TX, TransactionScenario

from spindle.coordinator.config import TransactionsConfig
from spindle.coordinator.transactions.metadata import TransactionMetadata
from spindle.coordinator.transactions.records import (
    TransactionRecord,
    encode_transaction,
    parse_transaction,
    value_version_of,
)
from spindle.coordinator.transactions.shard import TransactionShard

CONFIG = TransactionsConfig(expiration_ms=3_000_000)
EXPIRATION_MS = CONFIG.expiration_ms + CONFIG.expiration_interval_ms
TIMEOUT_MS = 60_000 + 2 * CONFIG.abort_interval_ms

Step = Callable[[TransactionScenario], object]


def of_producer(s: TransactionScenario) -> tuple[int, int]:
    """Return the producer id and epoch that the last client was told."""
    transaction = s.shard.ids.find(TX)
    return (
        (-1, -1)
        if transaction is None
        else (transaction.metadata.producer_id, transaction.metadata.producer_epoch)
    )


def exhaust(s: TransactionScenario) -> None:
    """Let the producer come close to its last epoch, unless a change is under way."""
    transaction = s.shard.ids.find(TX)
    if (
        transaction is not None
        and transaction.pending is None
        and s.held is None
        and s.log[-1].metadata
    ):
        s.set_epoch(max(transaction.metadata.producer_epoch, LAST_EPOCH - 1))


STEPS: dict[str, Step] = {
    "init": lambda s: s.init(),
    "init again": lambda s: s.init(of_producer(s)),
    "no ids": lambda s: setattr(s, "has_ids", not s.has_ids),
    "add P0": lambda s: s.add(of_producer(s), P0),
    "add P1": lambda s: s.add(of_producer(s), P1, version=0),
    "commit": lambda s: s.end(of_producer(s)),
    "abort": lambda s: s.end(of_producer(s), is_commit=False),
    "commit of an old client": lambda s: s.end(of_producer(s), version=0),
    "markers": lambda s: s.mark(),
    "one marker": lambda s: one_marker(s),
    "hold": lambda s: None if s.held is not None else s.hold(),
    "committed": lambda s: s.commit(),
    "failed": lambda s: s.fail(),
    "time out": lambda s: s.advance(TIMEOUT_MS),
    "expire": lambda s: s.advance(EXPIRATION_MS),
    "last epochs": exhaust,
    "new coordinator": lambda s: s.start() if s.held is None else None,
}


def one_marker(s: TransactionScenario) -> None:
    for transaction, partitions in s.markers:
        s.markers_written(transaction, partitions[:1])


def replayed(s: TransactionScenario, records: Iterable[TransactionRecord]) -> TransactionShard:
    shard = TransactionShard(CONFIG, lambda: -1, lambda: s.transaction_version, lambda *_: None)
    for offset, record in enumerate(records):
        parsed = parse_transaction(*encode_transaction(record), offset)
        assert parsed is not None
        shard.replay(parsed, -1)
    return shard


def compacted(records: Iterable[TransactionRecord]) -> list[TransactionRecord]:
    """Return the last record of each key, without tombstones."""
    last = {record.transactional_id: record for record in records}
    return [record for record in last.values() if record.metadata is not None]


def state(
    ids: Iterable[tuple[str, TransactionMetadata]], version: int
) -> dict[str, TransactionMetadata]:
    """Return the states as records of this version hold them."""
    state = {}
    for name, metadata in ids:
        record = TransactionRecord(name, metadata, version)
        parsed = parse_transaction(*encode_transaction(record), 0)
        assert parsed is not None
        assert parsed.metadata is not None
        state[name] = parsed.metadata
    return state


def known(shard: TransactionShard) -> list[tuple[str, TransactionMetadata]]:
    """Return the committed states. The epoch that fences a producer counts once it is stored."""
    return [
        (
            transaction.name,
            replace(transaction.metadata, producer_epoch=transaction.metadata.producer_epoch - 1)
            if transaction.has_unstored_fence
            else transaction.metadata,
        )
        for transaction in shard.ids
        if transaction.metadata.producer_epoch >= 0
    ]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from((0, 1, 2)), st.lists(st.sampled_from(sorted(STEPS)), min_size=5, max_size=20)
)
def test_replay_gives_what_the_coordinator_knew(version: int, names: list[str]) -> None:
    s = TransactionScenario(transaction_version=version, config=CONFIG)
    value_version = value_version_of(version)
    s.init()
    s.add(of_producer(s), P0, version=version)
    for name in names:
        STEPS[name](s)
        live = state(known(s.shard), value_version)
        for records in (s.log, compacted(s.log)):
            assert state(known(replayed(s, records)), value_version) == live, name
