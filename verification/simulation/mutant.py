"""A mutant: a deliberate mistake in Spindle, which the simulation must find."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

Function = Callable[..., Any]


class Mutant(NamedTuple):
    """One mistake.

    Attributes:
        owner: the class or module that contains the mistake.
        name: the attribute that is replaced.
        make: returns the replacement, given the original.
        besides: further mistakes, if another safeguard repairs the effect of one alone.
    """

    owner: Any
    name: str
    make: Callable[[Function], Any]
    besides: "tuple[Mutant, ...]" = ()


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Make the mistakes within the context."""
    mistakes = (mutant, *mutant.besides)
    originals = [mistake.owner.__dict__[mistake.name] for mistake in mistakes]
    for mistake, original in zip(mistakes, originals, strict=True):
        setattr(mistake.owner, mistake.name, mistake.make(original))
    try:
        yield
    finally:
        for mistake, original in zip(mistakes, originals, strict=True):
            setattr(mistake.owner, mistake.name, original)


def nothing(original: Function) -> Function:
    """Do nothing in place of the original."""
    return lambda *args, **options: None


def always(value: Any) -> Callable[[Function], Function]:
    """Return the value in place of calling the original."""
    return lambda original: lambda *args, **options: value
