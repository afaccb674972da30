"""The steps of an execution: lines for people, or JSON lines for programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from spindle.common.printable import printable


@dataclass(frozen=True, slots=True)
class ExecutionStep:
    """A step of an execution.

    Attributes:
        event: its name for programs.
        text: a line for people.
        facts: what programs need: numbers, names, sizes in bytes.
    """

    event: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


Tell = Callable[[ExecutionStep], None]
"""Shows a step."""


class Remarks:
    """Reports remarks; one that repeats with the next plan is reported once."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._reported: set[str] = set()

    def tell(self, remarks: Sequence[str]) -> None:
        """Report the remarks that the last call did not have."""
        for remark in dict.fromkeys(remarks):
            if remark not in self._reported:
                self._tell(ExecutionStep("remark", remark, {"remark": remark}))
        self._reported = set(remarks)


def printing(*, as_json: bool, **common: Any) -> Tell:
    """Return a function that prints steps.

    Args:
        common: facts that each JSON line begins with.
    """

    def tell(step: ExecutionStep) -> None:
        document = {**common, "event": step.event, **step.facts}
        if as_json:
            click.echo(json.dumps(document))
        else:
            click.echo("\n".join(map(printable, step.text.split("\n"))))

    return tell
