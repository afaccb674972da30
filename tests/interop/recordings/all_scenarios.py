"""Imports the modules with scenarios, so that SCENARIOS is complete."""

from recordings import (
    scenarios_directories,
    scenarios_formats,
    scenarios_placement,
    scenarios_quorum,
    scenarios_sessions,
)
from recordings.scenario import SCENARIOS as _REGISTERED

SCENARIOS = dict(sorted(_REGISTERED.items()))

__all__ = [
    "SCENARIOS",
    "scenarios_directories",
    "scenarios_formats",
    "scenarios_placement",
    "scenarios_quorum",
    "scenarios_sessions",
]
