"""The steps of an execution: lines for people, or JSON lines for programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from spindle.common.printable import printable


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A step of an execution.

    Attributes:
        event: its name for programs.
        text: a line for people.
        facts: what programs need: numbers, names, sizes in bytes.
    """

    event: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


Reporter = Callable[[ProgressEvent], None]
"""Shows a step."""


class Remarks:
    """Reports remarks; one that repeats with the next plan is reported once."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._reported: set[str] = set()

    def report(self, remarks: Sequence[str]) -> None:
        """Report the remarks that the last call did not have."""
        for remark in dict.fromkeys(remarks):
            if remark not in self._reported:
                self._report(ProgressEvent("remark", remark, {"remark": remark}))
        self._reported = set(remarks)


def printing(*, as_json: bool, **common: Any) -> Reporter:
    """Return a function that prints steps.

    Args:
        common: facts that each JSON line begins with.
    """

    def report(step: ProgressEvent) -> None:
        document = {**common, "event": step.event, **step.facts}
        if as_json:
            click.echo(json.dumps(document))
        else:
            click.echo("\n".join(map(printable, step.text.split("\n"))))

    return report
