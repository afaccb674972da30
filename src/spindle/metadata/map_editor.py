"""Maps of an image, and how a delta changes them.

The maps of an image never change. A delta edits through `MapEditor`, which copies the dict at the
first write; so a delta copies each map once at most, however many records it has. Only this class
knows the representation: a tree-shaped map can replace the dict when copies cost too much.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class MapEditor(Generic[K, V]):
    """Pending changes of one map. After `result()` the editor starts from what it returned."""

    __slots__ = ("_base", "_copy")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._copy: dict[K, V] | None = None

    @property
    def is_changed(self) -> bool:
        return self._copy is not None

    def get(self, key: K) -> V | None:
        return (self._base if self._copy is None else self._copy).get(key)

    def current(self) -> Mapping[K, V]:
        """Return the map as it stands; valid until the next write."""
        return self._base if self._copy is None else self._copy

    def set(self, key: K, value: V) -> None:
        if self._copy is None:
            self._copy = dict(self._base)
        self._copy[key] = value

    def remove(self, key: K) -> V | None:
        """Remove the key if it exists, and return its value."""
        if self._copy is None:
            if key not in self._base:
                return None
            self._copy = dict(self._base)
        return self._copy.pop(key, None)

    def clear(self) -> None:
        self._copy = {}

    def result(self) -> Mapping[K, V]:
        if self._copy is not None:
            self._base = self._copy
            self._copy = None
        return self._base
