"""The first invariant that was violated; the simulation ends there."""


class InvariantViolated(AssertionError):
    """The simulated cluster did what it must never do."""


class Verdict:
    """Collects violations: a node may swallow an exception that is raised inside of it."""

    def __init__(self) -> None:
        self.violation: str | None = None

    def violated(self, text: str) -> None:
        if self.violation is None:
            self.violation = text

    def check(self, is_right: bool, text: str) -> None:
        if not is_right:
            self.violated(text)

    def raise_if_violated(self) -> None:
        if self.violation is not None:
            raise InvariantViolated(self.violation)
