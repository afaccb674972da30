"""Deliberately broken variants of Spindle: each has to be caught, or the simulation is blind.

A mutant replaces one function of the real code for as long as it is applied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """One mistake.

    Attributes:
        owner: the class or module that it is made in.
        name: the attribute that is replaced.
        make: gives the replacement, from the original.
        story: what it breaks.
    """

    owner: Any
    name: str
    make: Any
    story: str


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Within, the mistake is made."""
    original = mutant.owner.__dict__[mutant.name]
    setattr(mutant.owner, mutant.name, mutant.make(original))
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.name, original)


MUTANTS: dict[str, Mutant] = {}
