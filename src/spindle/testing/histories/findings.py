"""The result of a check: faults by kind, and how much there was to check."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

_SHOWN: Final = 20
"""Faults of one kind that are named; the others are counted."""


class FaultKind(StrEnum):
    """The rules that a history can break."""

    LOST = "lost"
    """An acknowledged or committed record is not in the log, or vanished after it was read."""
    DUPLICATED = "duplicated"
    """A record is in a topic more often than it was sent."""
    PHANTOM = "phantom"
    """A record was never sent."""
    OUT_OF_ORDER = "out of order"
    """Records of a producer are in a partition in another order than they were sent."""
    ABORTED_READ = "aborted read"
    """A record of an aborted transaction is visible (G1a)."""
    UNCOMMITTED_READ = "uncommitted read"
    """A record was visible before anybody had asked to commit its transaction (G1b)."""
    FRACTURED = "fractured"
    """A part of a transaction is visible and another part is not."""
    INCONSISTENT = "inconsistent"
    """Two records were seen at one offset."""
    NOT_MONOTONIC = "not monotonic"
    """A consumer got an offset that is not above its previous one."""
    SKIPPED = "skipped"
    """A consumer passed over a visible record."""
    NOT_ASSIGNED = "not assigned"
    """A member of a group got a record of a partition that it was not given."""
    NEVER_DELIVERED = "never delivered"
    """A group that had to read everything did not get a record."""
    TAKEN_BACK = "taken back"
    """A committed offset was lost or went back."""
    ABORTED_OFFSET = "aborted offset"
    """An offset is committed although its transaction was aborted or not ended."""
    INVENTED_OFFSET = "invented offset"
    """An offset is committed that nobody has sent."""
    NOT_COPIED = "not copied"
    """A record has no copy although its offset is committed, or the application was finished."""
    COPIED_TWICE = "copied twice"
    """A record has more than one copy."""
    COPIED_BEFORE_COMMIT = "copied before commit"
    """A record has a copy although its offset is not committed."""
    COPY_WITHOUT_SOURCE = "copy without source"
    """A record in the target has no source."""
    COPY_OUT_OF_ORDER = "copy out of order"
    """Copies of a partition's records are in another order than the records."""


class HistoryFault(NamedTuple):
    """One broken rule, in words."""

    kind: FaultKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a check.

    Attributes:
        faults: empty if all rules hold; not more than 20 of a kind.
        counts: the number of all faults by their kind.
        acknowledged: records that were acknowledged, `without_offset` of them at no known offset.
        stored: records in the logs.
        delivered: records that members of groups got, `redelivered` of them not for the first time
            (after a rebalance, from the committed offset on).
        committed, aborted, undecided: transactions by their outcome.
        copied: records that have a copy.
    """

    faults: tuple[HistoryFault, ...]
    counts: dict[FaultKind, int]
    acknowledged: int = 0
    without_offset: int = 0
    stored: int = 0
    delivered: int = 0
    redelivered: int = 0
    committed: int = 0
    aborted: int = 0
    undecided: int = 0
    copied: int = 0

    @property
    def lines(self) -> list[str]:
        """A sentence for each fault, and how many more there are of a kind."""
        shown = Counter(fault.kind for fault in self.faults)
        return [
            *map(str, self.faults),
            *(
                f"{kind}: ... and {count - shown[kind]} more of this kind"
                for kind, count in self.counts.items()
                if count > shown[kind]
            ),
        ]

    @property
    def text(self) -> str:
        """One line for people."""
        unknown = f" ({self.without_offset:,} without an offset)" if self.without_offset else ""
        parts = [
            f"{self.acknowledged:,} records acknowledged{unknown}",
            f"{self.stored:,} stored",
            f"{self.delivered:,} delivered ({self.redelivered:,} again after a rebalance)",
        ]
        if self.committed or self.aborted or self.undecided:
            parts.append(
                f"{self.committed:,} transactions committed, {self.aborted:,} aborted, "
                f"{self.undecided:,} undecided"
            )
        if self.copied:
            parts.append(f"{self.copied:,} records copied")
        return ", ".join((*parts, f"{sum(self.counts.values()):,} faults"))


def limited(
    faults: Iterable[HistoryFault],
) -> tuple[tuple[HistoryFault, ...], dict[FaultKind, int]]:
    """Return the faults that are named, and the number of all by their kind."""
    counts: Counter[FaultKind] = Counter()
    named = []
    for fault in faults:
        counts[fault.kind] += 1
        if counts[fault.kind] <= _SHOWN:
            named.append(fault)
    return tuple(named), dict(counts)
