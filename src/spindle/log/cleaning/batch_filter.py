"""The part of one batch that compaction keeps: all, some records, the batch alone, or nothing."""

from collections.abc import Mapping

from spindle.common.errors import RecordsTooLarge
from spindle.common.ports import Bytes
from spindle.log.cleaning.key_map import CopyRules, FilteredRecords, KeyMap
from spindle.log.cleaning.plan import LastRecord
from spindle.log.cleaning.transactions import CleanedTransactions
from spindle.log.segments.segment import ScannedBatch
from spindle.protocol.records.batch import (
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    BatchHeader,
)
from spindle.protocol.records.builder import empty_batch, rebuild_batch, seal_batch
from spindle.protocol.records.compression import (
    MODERATE_BYTES,
    DecompressionBuffer,
    compress,
    decompress,
    in_turn,
)
from spindle.protocol.records.record import (
    Record,
    decode_bounded,
    decoded_bytes_limit,
)


def must_remain(
    header: BatchHeader, rules: CopyRules, last_records: Mapping[int, LastRecord]
) -> bool:
    """Return whether the batch has to stay, if necessary without records.

    The last batch of a producer preserves its sequence (its epoch, if the batch is a marker); the
    last batch of the pass preserves the last offset.
    """
    last = last_records.get(header.producer_id) if header.has_producer_id else None
    if last is not None:
        if last.last_data_offset >= 0:
            is_last = header.last_offset == last.last_data_offset
        else:
            is_last = header.is_control and header.producer_epoch == last.producer_epoch
        if is_last:
            return True
    return header.next_offset == rules.round_end


class BatchFilter:
    """Filters the batches of a log, which have to come in order."""

    __slots__ = ("_buffer", "_keys", "_last_records", "_rules", "_transactions")

    def __init__(
        self,
        keys: KeyMap,
        rules: CopyRules,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        buffer: DecompressionBuffer,
    ) -> None:
        self._buffer = buffer
        self._keys = keys
        self._rules = rules
        self._transactions = transactions
        self._last_records = last_records

    def filter(self, batch: ScannedBatch) -> Bytes | None:
        """Return the part of a batch to keep; None if nothing is kept.

        Raises:
            CorruptRecords: the records do not parse, or exceed the limits of a broker.
        """
        header = batch.header
        if header.is_control:
            kept = self._filter_marker(batch)
        elif self._transactions.is_aborted(header):
            kept = None
        else:
            kept = self._filter_data(batch)
        if kept is None and must_remain(header, self._rules, self._last_records):
            return empty_batch(header)
        return kept

    def _filter_marker(self, batch: ScannedBatch) -> Bytes | None:
        """Keep a marker until its transaction has no batch left and its horizon has passed."""
        header = batch.header
        is_done = self._transactions.is_marker_without_batches(header, batch.data)
        horizon_ms = header.delete_horizon_ms
        if header.record_count == 0:
            return None
        if not is_done:
            return batch.data
        if horizon_ms is None:
            records = decode_bounded(batch.data, 0, header)
            new_horizon_ms = self._rules.new_horizon_ms
            return rebuild_batch(header, records, delete_horizon_ms=new_horizon_ms)
        return None if horizon_ms <= self._rules.now_ms else batch.data

    def _filter_data(self, batch: ScannedBatch) -> Bytes | None:
        try:
            return self._filter_within(MODERATE_BYTES, batch)
        except RecordsTooLarge:
            limit_bytes = decoded_bytes_limit(batch.header.size_bytes)
            return in_turn(self._filter_within, limit_bytes, batch)

    def _filter_within(self, limit_bytes: int, batch: ScannedBatch) -> Bytes | None:
        header = batch.header
        payload = decompress(header.codec, batch.data[HEADER_BYTES:], limit_bytes, self._buffer)
        filtered = self._keys.filter_records(header, payload, self._rules)
        if filtered is not None:
            return _rebuilt(batch, filtered)
        records = decode_bounded(batch.data, 0, header)
        kept = [record for record in records if self._stays(header, record)]
        if not kept:
            return None
        has_tombstone = any(record.value is None for record in kept)
        needs_horizon = has_tombstone and header.delete_horizon_ms is None
        if len(kept) == len(records) and not needs_horizon:
            return batch.data
        new_horizon_ms = self._rules.new_horizon_ms if needs_horizon else None
        return rebuild_batch(header, kept, delete_horizon_ms=new_horizon_ms)

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if record.offset >= self._rules.known_end:
            return True
        if record.key is None or record.offset < self._keys.newest_offset(record.key):
            return False
        horizon_ms = header.delete_horizon_ms
        return record.value is not None or horizon_ms is None or self._rules.now_ms < horizon_ms


def _rebuilt(batch: ScannedBatch, filtered: FilteredRecords) -> Bytes | None:
    if filtered.kept_count == 0:
        return None
    if filtered.is_unchanged:
        return batch.data
    header = batch.header
    attributes = header.attributes
    if filtered.sets_horizon:
        attributes |= DELETE_HORIZON_FLAG
    rebuilt = header._replace(
        attributes=attributes,
        base_timestamp=filtered.base_timestamp,
        max_timestamp=filtered.max_timestamp,
        record_count=filtered.kept_count,
    )
    return seal_batch(rebuilt, compress(rebuilt.codec, filtered.data))
