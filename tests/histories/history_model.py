"""A correct log in memory, and clients at work on it: their histories must have no fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from spindle.testing.histories import (
    Acknowledged,
    Assigned,
    ClientHistory,
    CommitAsked,
    Copy,
    Delivered,
    NumberedRecord,
    OffsetCommitted,
    OffsetRead,
    OffsetsAsked,
    OffsetSent,
    RecordSent,
    TopicPartition,
    TransactionEnded,
)

PARTITIONS = 2
INPUT, OUTPUT, PLAIN = "input", "output", "plain"
READERS, COPIERS = "readers", "copiers"


@dataclass
class ModelTransaction:
    """`is_committed` is None while it is open."""

    name: str
    is_committed: bool | None = None
    unmarked: list[TopicPartition] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class ModelLog:
    """Entries are (record, transaction); a marker has no record."""

    entries: list[tuple[NumberedRecord | None, ModelTransaction | None]] = field(
        default_factory=list
    )
    open: dict[str, int] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=len(self.entries))

    def visible(self, start: int = 0) -> dict[int, NumberedRecord]:
        return {
            offset: record
            for offset, (record, owner) in enumerate(
                self.entries[start : self.last_stable_offset], start
            )
            if record is not None and (owner is None or owner.is_committed)
        }


class HistoryModel:
    """Runs producers, transactions, readers and a copier in a random interleaving."""

    def __init__(self, seed: int, work: int = 12) -> None:
        self.random = Random(seed)
        self.history = ClientHistory(
            must_read={READERS: [INPUT, PLAIN]}, copies=[Copy(COPIERS, INPUT, OUTPUT)]
        )
        self.note = self.history.events.append
        self.logs = {
            TopicPartition(topic, index): ModelLog()
            for topic in (INPUT, OUTPUT, PLAIN)
            for index in range(PARTITIONS)
        }
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.work = work
        self.questions = 0
        self.is_writing = True

    def run(self) -> ClientHistory:
        writers = [self.plain("p"), self.plain("q"), self.transactions("t"), self.transactions("u")]
        others = [self.reader("first"), self.loose_reader(), self.copier(), self.asker()]
        self.play(writers, others)
        self.is_writing = False
        self.play(others, [])
        self.play([self.reader("second"), self.asker()], [])
        self.history.logs = {where: log.visible() for where, log in self.logs.items()}
        return self.history

    def play(self, needed: list[Iterator[None]], others: list[Iterator[None]]) -> None:
        actors = [*needed, *others]
        while any(one in actors for one in needed):
            actor = self.random.choice(actors)
            if next(actor, self) is self:
                actors.remove(actor)

    # -- producers

    def plain(self, name: str) -> Iterator[None]:
        for number in range(self.work * 4):
            record = NumberedRecord(name, number)
            self.note(RecordSent(record, PLAIN))
            yield
            if self.random.random() < 0.1:
                continue  # never stored, never acknowledged
            where = TopicPartition(PLAIN, self.random.randrange(PARTITIONS))
            offset = self.append(where, record, None)
            yield
            if self.random.random() < 0.9:
                self.note(Acknowledged(record, where, offset if number % 9 else None))

    def append(
        self, where: TopicPartition, record: NumberedRecord, owner: ModelTransaction | None
    ) -> int:
        log = self.logs[where]
        log.entries.append((record, owner))
        offset = len(log.entries) - 1
        if owner is not None:
            log.open.setdefault(owner.name, offset)
            if where not in owner.unmarked:
                owner.unmarked.append(where)
        return offset

    def transactions(self, name: str) -> Iterator[None]:
        number = 0
        for count in range(self.work):
            transaction = ModelTransaction(f"{name}{count}")
            for _ in range(self.random.randint(1, 5)):
                record = NumberedRecord(name, number)
                where = TopicPartition(INPUT, self.random.randrange(PARTITIONS))
                self.note(RecordSent(record, INPUT, transaction.name))
                offset = self.append(where, record, transaction)
                number += 1
                yield
                if self.random.random() < 0.9:
                    self.note(Acknowledged(record, where, offset, transaction.name))
            yield from self.end(transaction)

    def end(self, transaction: ModelTransaction) -> Iterator[None]:
        """Commit, abort, or leave it to the coordinator; sometimes the answer is lost."""
        chance = self.random.random()
        if chance < 0.75:
            self.note(CommitAsked(transaction.name))
            yield
        transaction.is_committed = chance < 0.65
        if transaction.is_committed:
            for where, offset in transaction.offsets.items():
                self.committed[COPIERS, where] = offset
        is_told = self.random.random() < 0.7
        markers = [self.mark(transaction, where) for where in transaction.unmarked]
        tell_at = self.random.randint(0, len(markers))
        for at, mark in enumerate([*markers, iter(())]):
            if is_told and at == tell_at:
                self.note(TransactionEnded(transaction.name, transaction.is_committed))
                yield
            yield from mark

    def mark(self, transaction: ModelTransaction, where: TopicPartition) -> Iterator[None]:
        log = self.logs[where]
        log.entries.append((None, transaction))
        log.open.pop(transaction.name, None)
        yield

    # -- consumers

    def reader(self, member: str) -> Iterator[None]:
        """Read the topics with read_committed, and commit at times; stop with the writers."""
        positions = {}
        for where in self.logs:
            if where.topic != OUTPUT:
                self.note(Assigned(READERS, member, where))
                positions[where] = self.committed.get((READERS, where), 0)
        is_last = member == "second"
        while self.is_writing or is_last:
            for where in positions:
                log = self.logs[where]
                stop = log.last_stable_offset
                if not is_last:
                    stop = min(stop, positions[where] + self.random.randint(0, 5))
                visible = log.visible(positions[where])
                for offset in range(positions[where], stop):
                    if offset in visible:
                        self.note(Delivered(READERS, member, where, offset, visible[offset]))
                positions[where] = max(positions[where], stop)
                if self.random.random() < 0.3:
                    self.note(OffsetSent(READERS, where, positions[where]))
                    self.committed[READERS, where] = positions[where]
                    yield
                    self.note(OffsetCommitted(READERS, where, positions[where]))
                yield
            if is_last:
                return

    def loose_reader(self) -> Iterator[None]:
        """Read everything, also what is aborted later."""
        where, position = TopicPartition(INPUT, 0), 0
        self.note(Assigned("loose", "loose", where))
        while self.is_writing:
            entries = self.logs[where].entries
            while position < len(entries):
                record = entries[position][0]
                if record is not None:
                    self.note(Delivered("loose", "loose", where, position, record, False))
                position += 1
                yield
            yield

    def copier(self) -> Iterator[None]:
        """Copy the input in transactions; start again from the committed offset after an abort."""
        count = 0
        while True:
            was_writing = self.is_writing
            has_news = False
            for index in range(PARTITIONS):
                source = TopicPartition(INPUT, index)
                start = self.committed.get((COPIERS, source), 0)
                stop = self.logs[source].last_stable_offset
                if start >= stop:
                    continue
                has_news = True
                end = min(stop, start + self.random.randint(1, 6))
                yield from self.copy(source, start, end, f"copy{count}")
                count += 1
            yield
            if not was_writing and not has_news:
                return

    def copy(self, source: TopicPartition, start: int, end: int, name: str) -> Iterator[None]:
        visible = self.logs[source].visible(start)
        transaction = ModelTransaction(name)
        target = TopicPartition(OUTPUT, source.partition)
        self.note(Assigned(COPIERS, "copier", source))
        for offset in range(start, end):
            if offset not in visible:
                continue
            record = visible[offset]
            self.note(Delivered(COPIERS, "copier", source, offset, record))
            self.note(RecordSent(record, OUTPUT, name))
            placed = self.append(target, record, transaction)
            yield
            self.note(Acknowledged(record, target, placed, name))
        self.note(OffsetSent(COPIERS, source, end, name))
        transaction.offsets[source] = end
        yield from self.end(transaction)

    def asker(self) -> Iterator[None]:
        """Ask for the committed offsets."""
        is_first = True
        while self.is_writing or is_first:
            is_first = False
            for group, topic in ((READERS, INPUT), (READERS, PLAIN), (COPIERS, INPUT)):
                self.questions += 1
                question = self.questions
                self.note(OffsetsAsked(group, question))
                yield
                for index in range(PARTITIONS):
                    where = TopicPartition(topic, index)
                    committed = self.committed.get((group, where), -1)
                    self.note(OffsetRead(group, question, where, committed))
                yield
