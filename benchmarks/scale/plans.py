"""Plans for clusters with many replicas: balance a cluster, drain a directory, empty a broker."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.planner import LIMITS, Shape, skewed_cluster
from spindle.planner.goals import balance, decommission, drain
from spindle.planner.plan import PlacementPlan

REPLICATION_FACTOR = 3
RACKS = 5


def measure(replicas: int, brokers: int, directories_each: int) -> dict[str, float]:
    """Return the CPU time of plans for a skewed cluster with about this many replicas."""
    partitions = replicas // REPLICATION_FACTOR
    shape = Shape("scale", partitions, brokers, directories_each, REPLICATION_FACTOR, RACKS)
    cluster = skewed_cluster(shape, 1)
    figures: dict[str, float] = {}
    goals: dict[str, Callable[[], PlacementPlan]] = {
        "balance": lambda: balance(cluster, LIMITS),
        "drain of a directory": lambda: drain(cluster, [0], LIMITS),
        "decommission of a broker": lambda: decommission(cluster, 1, LIMITS),
    }
    for name, make in goals.items():
        begin_cpu_s = time.process_time()
        plan = make()
        figures[f"{name}, CPU-s"] = time.process_time() - begin_cpu_s
        figures[f"{name}, moves"] = sum(len(round_.moves) for round_ in plan.rounds)
        if name == "balance":
            figures["balance, bytes moved / lower bound"] = (
                plan.moved_bytes / plan.lower_bound_bytes if plan.lower_bound_bytes else 1.0
            )
            figures["balance, spread in points"] = 100 * plan.spread
    return figures
