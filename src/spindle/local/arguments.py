"""Checks of the arguments of a new cluster: counts and timeouts."""

from typing import Final

_MAX_NODES: Final = 64


def check_count(name: str, value: int, least: int) -> None:
    """Refuse a number of nodes, directories or racks that no cluster can have.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is less than `least`, or more than 64.
    """
    if not isinstance(value, int):
        raise TypeError(f"{name} {value!r} is not an integer")
    if not least <= value <= _MAX_NODES:
        raise ValueError(f"{name} {value} is not in {least} to {_MAX_NODES}")


def check_timeout(name: str, seconds: float) -> None:
    """Reject a timeout that is not positive.

    Raises:
        ValueError: it is not above 0.
    """
    if not seconds > 0:
        raise ValueError(f"{name} {seconds} is not above 0")
