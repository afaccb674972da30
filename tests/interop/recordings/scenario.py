"""Scenarios by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recordings.programs import Program
from recordings.stage import Stage, paragraphs

_SHOWN = 30
"""Lines of a recording that an error shows."""
Play = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A function that plays on a stage, and how the stage is set up."""

    name: str
    play: Play
    setup: dict[str, Any]

    @property
    def needs_disks(self) -> bool:
        """True if file systems must fail, which needs root and loop devices."""
        return bool(self.setup.get("failing"))

    def record(self, program: Program, folder: Path) -> str:
        """Play the scenario and return the text of the recording."""
        with Stage(program, folder, **self.setup) as stage:
            try:
                self.play(stage)
            except Exception as error:
                error.add_note("The recording ends with:\n" + "\n".join(stage.lines[-_SHOWN:]))
                raise
            return paragraphs(stage.lines)


SCENARIOS: dict[str, Scenario] = {}
"""All scenarios by name, after the import of `recordings.all_scenarios`."""


def scenario(name: str, **setup: Any) -> Callable[[Play], Play]:
    """Register a function as a scenario; `setup` are arguments of `Stage`."""

    def register(play: Play) -> Play:
        SCENARIOS[name] = Scenario(name, play, setup)
        return play

    return register
