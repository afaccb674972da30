"""Counters of a controller: its driver adds to them, and the metrics read them."""

from spindle.runtime.metrics.durations import Durations


class ControllerHistory:
    """Since the start of the node.

    Attributes:
        operations: how many were decided, and how long that held the event loop.
        operations_started: requests and periodic tasks.
        operations_timed_out: those that were not committed in time.
        heartbeats_timed_out: brokers that were fenced because they were silent.
        errors: records that could not be replayed.
    """

    __slots__ = (
        "errors",
        "heartbeats_timed_out",
        "operations",
        "operations_started",
        "operations_timed_out",
    )

    def __init__(self) -> None:
        self.operations = Durations()
        self.operations_started = 0
        self.operations_timed_out = 0
        self.heartbeats_timed_out = 0
        self.errors = 0
