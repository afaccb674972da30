"""Count and times of an activity."""


class Durations:
    """Count and times since the start of the node.

    Attributes:
        count: how often the activity took place.
        total_s: the sum of the times.
        longest_s: the longest time since the last scrape.
    """

    __slots__ = ("count", "longest_s", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.longest_s = 0.0

    def observe(self, elapsed_s: float) -> None:
        self.count += 1
        self.total_s += elapsed_s
        self.longest_s = max(self.longest_s, elapsed_s)

    def take_longest_s(self) -> float:
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s
