"""Options that have no effect: misspelt ones, and those of other sources.

The built-in `kafka` source ignores them silently. A job that moves over must run, so they are no
error in a read or a write; a warning names them.
"""

import difflib
import warnings
from collections.abc import Iterable, Mapping

from spindle.pipeline.options.client import KAFKA_PREFIX
from spindle.pipeline.options.client_names import CLIENT_PROPERTIES

_PROPERTIES = {f"{KAFKA_PREFIX}{name}": f"{KAFKA_PREFIX}{name}" for name in CLIENT_PROPERTIES}
_LIKENESS = 0.8
_PLACE = "spindle"
_told: dict[str | tuple[str, type[Warning], int], int] = {}


def warn_of_unknown_options(given: Mapping[str, str], known: Iterable[str]) -> None:
    """Warn of the options that have no effect, each once; see `unknown_options`.

    Spark calls the sources in a process of its own, where no line of the user's program is known,
    and a line of this package would not help the user.
    """
    for name, nearest in unknown_options(given, known).items():
        text = unknown_text(name, nearest)
        warnings.warn_explicit(text, RuntimeWarning, _PLACE, 1, registry=_told)


def unknown_options(given: Mapping[str, str], known: Iterable[str]) -> dict[str, str | None]:
    """Return the options that are not known, each with the known one that it resembles, or None.

    Args:
        known: The options without the properties of Kafka's clients (`kafka.`), which all are.
    """
    names = {name.lower(): name for name in known}
    unknown_options: dict[str, str | None] = {}
    for key in given:
        name = key.lower()
        among = _PROPERTIES if is_client_property(name) else names
        if name not in among:
            nearest = difflib.get_close_matches(name, among, n=1, cutoff=_LIKENESS)
            unknown_options[key] = among[nearest[0]] if nearest else None
    return unknown_options


def is_client_property(name: str) -> bool:
    """Return True for the name of an option that is a property of the client."""
    return name.lower().startswith(KAFKA_PREFIX)


def unknown_text(name: str, nearest: str | None) -> str:
    """Return the sentence about an option that is not known."""
    if nearest is not None:
        return f"option {name} has no effect; is {nearest} meant?"
    if is_client_property(name):
        return f"option {name} has no effect: no client of Kafka has this property"
    return f"option {name} has no effect: there is no such option here"
