"""Collects the events of all clients of a rehearsal, which run on threads of their own."""

import threading

from spindle.common.ids import TopicPartition
from spindle.testing.histories.client_history import ClientHistory
from spindle.testing.histories.events import Acknowledged, Delivered, Event, OffsetRead


class Recorder:
    """The history so far.

    Attributes:
        troubles: errors that no client should have met, in words.
    """

    def __init__(self) -> None:
        self.history = ClientHistory()
        self.troubles: list[str] = []
        self._lock = threading.Lock()
        self._acknowledged = 0
        self._next: dict[tuple[str, TopicPartition], int] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._questions = 0

    def note(self, event: Event) -> None:
        """Add an event."""
        with self._lock:
            self.history.events.append(event)
            match event:
                case Acknowledged():
                    self._acknowledged += 1
                case OffsetRead():
                    self._committed[event.group, event.partition] = event.offset
                case Delivered():
                    where = (event.group, event.partition)
                    self._next[where] = max(self._next.get(where, 0), event.offset + 1)

    def record_error(self, text: str) -> None:
        """Add an error that no client should have met."""
        with self._lock:
            self.troubles.append(text)

    def new_question(self) -> int:
        """Return a new request id."""
        with self._lock:
            self._questions += 1
            return self._questions

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged records."""
        return self._acknowledged

    def committed(self, group: str, partition: TopicPartition) -> int:
        """Return the offset that a group has committed, by the last answer; -1 for none."""
        return self._committed.get((group, partition), -1)

    def next_offset(self, group: str, partition: TopicPartition) -> int:
        """Return the offset behind the last record that a group got."""
        return self._next.get((group, partition), 0)
