"""The declarations of a message class: its fields in all versions (KIP-482 for tagged fields).

The classes in `messages/` are generated: one class per message for *all* its versions, so that a
handler is written once. A field that a version lacks has its default after reading that version,
and is left out when that version is written.
"""

from typing import Any, ClassVar, Final, NamedTuple

from spindle.common.uuids import ZERO_UUID

NEWEST_VERSION: Final = 32767
NEVER: Final = 32767
EMPTY: Any = object()
"""Default argument of arrays and structs: a new empty one."""


class Field(NamedTuple):
    """A field of a struct.

    `type` is a primitive name (bool, int8, int16, uint16, int32, int64, float64, string, bytes,
    records, uuid) or a message class. Versions are inclusive. `nullable` and `tagged` are the first
    version in which the field may be null or is a tagged field; NEVER for no version.
    """

    name: str
    type: Any
    first: int = 0
    last: int = NEWEST_VERSION
    is_array: bool = False
    nullable: int = NEVER
    tag: int = -1
    tagged: int = NEVER
    default: Any = EMPTY


class Message:
    """The base of all message classes: equality and text by value."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = NEVER
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{f.name}={getattr(self, f.name)!r}"
            for f in self.FIELDS
            if getattr(self, f.name) != default_of(f)
        )
        return f"{type(self).__qualname__}({shown})"


_ZEROES: Final[dict[str, Any]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": ZERO_UUID,
    "float64": 0.0,
}


def default_of(field: Field) -> Any:
    """Return the default of a field, a new object for arrays and structs."""
    if field.default is not EMPTY:
        return field.default
    if field.is_array:
        return []
    if isinstance(field.type, str):
        return _ZEROES.get(field.type, 0)
    return field.type()
