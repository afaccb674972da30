"""The records that read-committed consumers see, against a list of transactions: under restarts,
kills, truncation, deleted records, retention and new leaders.
"""

from dataclasses import replace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_builders import NOW_MS, append, decode, end_transaction, new_log, new_storage, reload

from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.protocol.records.batch import batches
from spindle.protocol.records.control import read_end_transaction
from spindle.testing.filesystem import MemoryFileSystem

CONFIG = LogConfig(
    segment_index_bytes=120,
    index_interval_bytes=60,
    retention_bytes=2_000,
    retention_ms=-1,
    producer_id_expiration_ms=1_000,
)
PLAIN = 0
PRODUCERS = st.integers(1, 3)


class Batch(NamedTuple):
    """One batch of the model; `is_commit` is None unless it is a marker."""

    first: int
    last: int
    producer: int
    epoch: int
    values: tuple[str, ...]
    is_commit: bool | None = None


class Span(NamedTuple):
    """A transaction; `marker` is None while it is open."""

    producer: int
    offsets: list[int]
    marker: Batch | None


class TransactionsMachine(RuleBasedStateMachine):
    """Producers that write at most one transaction each at a time, and plain records."""

    @initialize(segment_bytes=st.sampled_from((500, 2_000)))
    def begin(self, segment_bytes: int) -> None:
        """Begin with segments of a few batches, or with ones of which a fetch gives many."""
        self.config = replace(CONFIG, segment_bytes=segment_bytes)
        self.files = MemoryFileSystem()
        self.log: Log = new_log(self.config, new_storage(self.files))
        self.batches: list[Batch] = []
        self.number = 0
        self.high_watermark = 0
        self.loaded_end_offset = 0

    # -- the model

    def spans(self) -> list[Span]:
        """Return the transactions, finished ones first."""
        done: list[Span] = []
        opened: dict[int, Span] = {}
        for batch in self.batches:
            if batch.producer == PLAIN:
                continue
            if batch.is_commit is None:
                span = opened.setdefault(batch.producer, Span(batch.producer, [], None))
                span.offsets.extend(range(batch.first, batch.last + 1))
            elif batch.producer in opened:
                done.append(opened.pop(batch.producer)._replace(marker=batch))
        return [*done, *opened.values()]

    def visible(self, stable_end: int) -> list[tuple[int, str]]:
        """Return what consumers see below the last stable offset."""
        hidden = {
            offset
            for span in self.spans()
            if span.marker is None or not span.marker.is_commit
            for offset in span.offsets
        }
        start = self.log.log_start_offset
        return [
            (offset, value)
            for batch in self.batches
            for offset, value in zip(range(batch.first, batch.last + 1), batch.values, strict=False)
            if start <= offset < stable_end and offset not in hidden
        ]

    def next_of(self, producer: int) -> tuple[int, int]:
        """Return the epoch of a producer, and the sequence that the log expects."""
        epoch = max(
            (batch.epoch for batch in self.batches if batch.producer == producer), default=0
        )
        entry = self.log.producers.get(producer)
        if entry is None and any(batch.producer == producer for batch in self.batches):
            # A client whose producer has expired begins again in a new epoch (KIP-360): replicas in
            # which it has not expired know the sequences of the earlier one.
            return epoch + 1, 0
        if entry is None or entry.producer_epoch < epoch:
            return epoch, 0
        return entry.producer_epoch, entry.last_sequence + 1

    # -- producers and coordinators

    @rule(producer=PRODUCERS, count=st.integers(1, 3))
    def write(self, producer: int, count: int) -> None:
        epoch, sequence = self.next_of(producer)
        values = self.values(count)
        first = append(
            self.log,
            *values,
            producer_id=producer,
            epoch=epoch,
            sequence=sequence,
            transactional=True,
        )
        self.batches.append(Batch(first, first + count - 1, producer, epoch, values))

    @rule(producer=PRODUCERS, is_commit=st.booleans(), bumps=st.booleans())
    def end(self, producer: int, is_commit: bool, bumps: bool) -> None:
        """End a transaction, or one that has no records here."""
        epoch = self.next_of(producer)[0] + bumps
        offset = end_transaction(
            self.log,
            producer,
            is_commit=is_commit,
            epoch=epoch,
            transaction_version=2 if bumps else 0,
        )
        self.batches.append(Batch(offset, offset, producer, epoch, (), is_commit))

    @rule(
        steps=st.lists(
            st.tuples(PRODUCERS, st.sampled_from(("write", "commit", "abort"))),
            min_size=4,
            max_size=8,
        ),
        is_fetched=st.booleans(),
    )
    def interleave(self, steps: list[tuple[int, str]], is_fetched: bool) -> None:
        """Let several producers write, and end what they have begun.

        Maybe a follower fetches all of it together, and leads.
        """
        for producer, step in steps:
            if step == "write":
                self.write(producer, 1)
            else:
                self.end(producer, is_commit=step == "commit", bumps=False)
        if is_fetched:
            self.lead_elsewhere(2_000, is_replicated=True)

    @rule(count=st.integers(1, 3))
    def write_plainly(self, count: int) -> None:
        values = self.values(count)
        first = append(self.log, *values)
        self.batches.append(Batch(first, first + count - 1, PLAIN, -1, values))

    def values(self, count: int) -> tuple[str, ...]:
        self.number += count
        return tuple(f"v{number}" + "x" * 40 for number in range(count))

    # -- the partition

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share: float) -> None:
        ends = [batch.last + 1 for batch in self.batches if batch.last >= self.high_watermark]
        if ends:
            self.high_watermark = ends[int(share * (len(ends) - 1))]
            self.log.update_high_watermark(self.high_watermark)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = self.log.log_start_offset
        self.log.increment_log_start_offset(start + int((self.high_watermark - start) * share))

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments(NOW_MS)
        self.high_watermark = self.log.high_watermark

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        span = self.log.log_end_offset - self.high_watermark
        self.log.truncate_to(self.log.log_end_offset - int(span * share), NOW_MS)
        self.loaded_end_offset = self.log.log_end_offset
        self.batches = [batch for batch in self.batches if batch.last < self.loaded_end_offset]

    @rule()
    def expire_producers(self) -> None:
        """Forget producers whose transactions have ended; they may begin at any sequence."""
        self.log.remove_expired_producers(NOW_MS + 1_000)

    @rule(is_clean=st.booleans(), expires=st.booleans())
    def restart(self, is_clean: bool, expires: bool) -> None:
        start, recovery_point = self.log.log_start_offset, self.log.recovery_point
        if is_clean:
            self.log.close()
        self.log = reload(
            self.files,
            self.config,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=start,
            now_ms=NOW_MS + 1_000 * expires,
        )
        self.loaded_end_offset = self.log.log_end_offset
        self.log.update_high_watermark(self.high_watermark)

    @rule(fetch_bytes=st.sampled_from((1, 300, 2_000)), is_replicated=st.booleans())
    def lead_elsewhere(self, fetch_bytes: int, is_replicated: bool) -> None:
        """Go on with a replica that has fetched everything from the log start on.

        It gets several batches at once, with the transactions of several producers.
        """
        self.files = MemoryFileSystem()
        replica = new_log(self.config, new_storage(self.files))
        start = offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            fetched = self.log.read(offset, fetch_bytes, 2**60).records
            placed = list(batches(fetched))
            if replica.log_end_offset < placed[0][1].base_offset:
                replica.truncate_fully_and_start_at(placed[0][1].base_offset)
            position, last = placed[-1]
            replica.append_as_follower(bytes(fetched[: position + last.size_bytes]), 0, NOW_MS)
            offset = replica.log_end_offset
        if replica.log_end_offset < start:
            replica.truncate_fully_and_start_at(start)
        self.log = replica
        if is_replicated:
            self.high_watermark = replica.log_end_offset
        self.log.update_high_watermark(self.high_watermark)
        self.log.increment_log_start_offset(start)

    # -- what consumers see

    @invariant()
    def the_last_stable_offset_is_exact(self) -> None:
        log = self.log
        start, stable = log.log_start_offset, log.last_stable_offset
        assert start <= stable <= log.high_watermark == self.high_watermark
        unstable = [
            [offset for offset in span.offsets if offset >= start]
            for span in self.spans()
            if span.marker is None or span.marker.last >= self.high_watermark
        ]
        # A snapshot tells no transaction whose marker is not replicated, as in Kafka.
        known = [
            [offset for offset in span.offsets if offset >= start]
            for span in self.spans()
            if span.marker is None
            or span.marker.last >= max(self.high_watermark, self.loaded_end_offset)
        ]
        assert stable <= min([self.high_watermark, *(offsets[0] for offsets in known if offsets)])
        if all(unstable):
            firsts = [span.offsets[0] for span in self.spans()]
            assert stable >= min([self.high_watermark, *(offsets[0] for offsets in unstable)]) or (
                min(firsts) < start
            )

    @invariant()
    def consumers_see_committed_records_only(self) -> None:
        stable = self.log.last_stable_offset
        for fetch_bytes in (1, 300):
            assert consume(self.log, stable, fetch_bytes) == self.visible(stable)


def consume(log: Log, stable_end: int, fetch_bytes: int) -> list[tuple[int, str]]:
    """Read as a read-committed consumer does, fetch by fetch."""
    seen: list[tuple[int, str]] = []
    offset = log.log_start_offset
    while offset < stable_end:
        fetched = log.read(offset, fetch_bytes, stable_end).records
        headers = [(position, header) for position, header in batches(fetched)]
        if not headers:
            break
        end_offset = headers[-1][1].next_offset
        aborted = sorted(log.aborted_transactions(offset, end_offset), key=lambda t: t.first_offset)
        hidden: set[int] = set()
        for position, header in headers:
            while aborted and aborted[0].first_offset < header.next_offset:
                hidden.add(aborted.pop(0).producer_id)
            records = decode(fetched[position : position + header.size_bytes])
            if header.is_control:
                marker = read_end_transaction(records[0])
                if marker is not None and not marker.is_commit:
                    hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                seen += [
                    (record.offset, (record.value or b"").decode())
                    for record in records
                    if record.offset >= offset
                ]
        offset = end_offset
    return seen


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
