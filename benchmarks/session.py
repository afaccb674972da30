"""One run of the benchmarks: every item, of every program in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from peers.node import Node
from rich.progress import Progress, TaskID

from benchmarks import page_cache
from benchmarks.floor import Floor
from benchmarks.items import Item, Sizes, Skipped, Subject, warm_up
from benchmarks.report import Results

T = TypeVar("T")
RECYCLED_VOLUMES = 2
"""Three replicas of half the volume of a run, the client's buffers and the node's own files."""


@dataclass(slots=True)
class Session:
    """A run: its programs, sizes and folder, and the results so far."""

    classes: tuple[type[Node], ...]
    sizes: Sizes
    runs: int
    folder: Path
    results: Results
    progress: Progress
    bar: TaskID

    def measure(self, items: list[Item]) -> None:
        """Measure the items with nodes of their own, then those that share nodes."""
        total = sum(self.runs * (len(self.classes) + item.has_floor) for item in items)
        self.progress.update(self.bar, total=total)
        for item in (item for item in items if not item.subject.is_shared):
            for number in range(self.runs):
                for node_class in in_turn(self.classes, number):
                    self._measure_new(item, number, node_class)
        for shared in dict.fromkeys(item.subject for item in items if item.subject.is_shared):
            some = [item for item in items if item.subject is shared]
            with self._failure_noted(f"nodes of {', '.join(item.name for item in some)}"):
                self._measure_shared(shared, some)

    def _measure_new(self, item: Item, number: int, node_class: type[Node]) -> None:
        self.progress.update(self.bar, description=f"{item.name}: {node_class.kind}")
        place = self.folder / f"{item.name}-{number}-{node_class.kind}"
        with self._failure_noted(f"{item.name} on {node_class.kind}"):
            try:
                subject = item.subject.make(node_class, place)
            except Skipped as missing:
                self.results.skipped[item.name] = str(missing)
                return
            try:
                self._measure_one(item, subject)
            finally:
                subject.remove()
        self.progress.advance(self.bar)

    def _measure_shared(self, shared: Subject, items: list[Item]) -> None:
        with ExitStack() as stack:
            subjects = [
                shared.make(node_class, self.folder / f"{shared.name}-{node_class.kind}")
                for node_class in self.classes
            ]
            for subject in subjects:
                stack.callback(subject.remove)
                stack.enter_context(subject)
            for subject in subjects:
                self.progress.update(self.bar, description=f"warm-up: {subject.kind}")
                self._recycle()
                warm_up(subject, self.sizes)
            floor = Floor(self.folder / "floor")
            for item in items:
                for number in range(self.runs):
                    floors = [floor] if item.has_floor else []
                    for subject in in_turn([*subjects, *floors], number):
                        self.progress.update(self.bar, description=f"{item.name}: {subject.kind}")
                        with self._failure_noted(f"{item.name} on {subject.kind}"):
                            self._measure_one(item, subject)
                        self.progress.advance(self.bar)

    def _measure_one(self, item: Item, subject: Any) -> None:
        self._recycle()
        self.results.add(item, subject.kind, item.run(subject, self.sizes))

    def _recycle(self) -> None:
        page_cache.recycle(self.folder, RECYCLED_VOLUMES * self.sizes.volume_bytes)

    @contextmanager
    def _failure_noted(self, what: str) -> Iterator[None]:
        """Note a failure of one measurement; the others go on."""
        try:
            yield
        except Exception as failure:  # noqa: BLE001 - a failed row must not lose the other rows
            self.results.failures.append(f"{what}: {failure!r}")
            self.progress.console.print(f"failed: {what}: {failure!r}", markup=False)


def in_turn(subjects: Sequence[T], number: int) -> Sequence[T]:
    """Return the order of run `number`: each one is as often before the others as after them."""
    return subjects if number % 2 == 0 else subjects[::-1]
