"""The limits that a plan keeps to."""

from dataclasses import dataclass

from spindle.common.text import size_text


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The limits of a plan.

    Attributes:
        spread: the largest difference between the fills of two directories after `balance`; 0.05
            is 5 points.
        max_fill: no directory is filled above this share of its capacity, not even during a copy.
        throttle_bytes_per_second: the throttle of each broker, separately for copies from other
            brokers, to other brokers, and between its directories.
        parallel_moves: the largest number of moves in one round that begin or end in a directory.
        keeps_racks: a move never lowers the number of racks that have a replica of the partition.

    Raises:
        ValueError: a limit is out of its range.
    """

    spread: float = 0.05
    max_fill: float = 0.95
    throttle_bytes_per_second: int = 50 * 2**20
    parallel_moves: int = 5
    keeps_racks: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.spread <= 1.0:
            raise ValueError(f"spread is {self.spread}; it must be between 0 and 1")
        if not 0.0 < self.max_fill <= 1.0:
            raise ValueError(f"max_fill is {self.max_fill}; it must be above 0 and at most 1")
        if self.throttle_bytes_per_second < 1:
            throttle = size_text(self.throttle_bytes_per_second)
            raise ValueError(f"the throttle is {throttle}/s; it must be at least 1 byte/s")
        if self.parallel_moves < 1:
            raise ValueError(f"parallel_moves is {self.parallel_moves}; it must be at least 1")
