"""The parts of the measurement of scale. A process of its own measures each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.scale import controllers, metadata_requests, plans
from benchmarks.scale.image import Size

PARTS: Final = ("one controller", "three controllers", "broker", "plans")


def measure(part: str, size: Size) -> Mapping[str, Any]:
    """Return the figures of one part at one size."""
    controllers.end_in_order()
    if part == "broker":
        return metadata_requests.measure(size)
    if part == "plans":
        return plans.measure(size.partitions, size.brokers, size.directories_each)
    measured = controllers.measure(size, 1 if part == "one controller" else 3)
    return {"figures": measured.figures, "latencies": measured.latencies}
