"""Counters of a controller: its driver adds to them, and the metrics read them."""

from spindle.runtime.metrics.durations import Durations


class ControllerHistory:
    """Counters since the start of the node.

    Attributes:
        operations: number of decisions, and the time for which they blocked the event loop.
        operations_started: requests and periodic tasks that were started.
        operations_timed_out: requests that were not committed in time.
        heartbeats_timed_out: brokers that were fenced because they sent no heartbeat.
        errors: decisions whose records could not be replayed.
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
