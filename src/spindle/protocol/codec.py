"""Encode and decode message classes with code that is compiled for each class and version.

The first use of a (class, version) compiles a reader or a writer. In it, neighbouring fixed-width
fields are one `struct` call, and no code tests the version; on CPython this is five to ten times
faster than walking the field table. Input may be hostile: every length is checked against the bytes
that are left, the number of elements is limited, and every violation is a `ProtocolViolation`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeVar, overload

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.protocol.message import EMPTY, NEVER, Field, Message, default_of

MAX_ELEMENTS: Final = 1_000_000
MAX_TAGGED_FIELDS: Final = 10_000
MAX_STRING_BYTES: Final = 32_767
"""Kafka's limit of every string. Only the compact form could hold more, and no reader takes it."""
_ERROR_MESSAGE: Final = "error_message"
BY_REFERENCE_BYTES: Final = 4096
"""Record sets of at least this size are handed on by reference and never copied."""

_UNLIMITED: Final = 1 << 62

M = TypeVar("M", bound=Message)
Reference = tuple[int, Bytes]

_FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_UVARINT: Final = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(16384)]


_READY_COUNTS: Final = 16


@cache
def _array_structs(code: str) -> list[Struct]:
    """Return structs of short arrays, such as the replicas of a partition, by length."""
    return [Struct(f">{count}{code}") for count in range(_READY_COUNTS)]


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def read_uvarint(buffer: Bytes, position: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 32 bits and the position after it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise ProtocolViolation("varint of more than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolViolation("varint of more than five bytes")


def _too_long(what: str, count: int, left: int) -> ProtocolViolation:
    return ProtocolViolation(f"{what} of {count} where {left} bytes are left")


def _bad_null(what: str) -> ProtocolViolation:
    return ProtocolViolation(f"{what} is null and may not be")


def _bad_count(what: str, count: int) -> ProtocolViolation:
    return ProtocolViolation(f"{what} has {count} elements, at most {MAX_ELEMENTS} are allowed")


def read_string_length(buffer: Bytes, position: int) -> tuple[int, int]:
    """Return the length of a compact string plus 1 (0 for null), and the position after it.

    Raises:
        ProtocolViolation: the string has more than `MAX_STRING_BYTES` bytes.
    """
    value, position = read_uvarint(buffer, position)
    if value > MAX_STRING_BYTES + 1:
        raise ProtocolViolation(
            f"string of {value - 1} bytes, at most {MAX_STRING_BYTES} are allowed"
        )
    return value, position


class TooManyElements(ProtocolViolation):
    """All arrays of a message together have more elements than the caller allows."""


def _too_many(what: str) -> TooManyElements:
    return TooManyElements(f"too many elements in all arrays together, the last one is {what}")


class _Source:
    """Lines of a generated function, with the objects that its globals need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "read_uvarint": read_uvarint,
            "read_string_length": read_string_length,
            "too_long": _too_long,
            "bad_null": _bad_null,
            "bad_count": _bad_count,
            "too_many": _too_many,
            "UV": _UVARINT,
            "ProtocolViolation": ProtocolViolation,
            "MAX_ELEMENTS": MAX_ELEMENTS,
            "MAX_TAGS": MAX_TAGGED_FIELDS,
            "BY_REFERENCE": BY_REFERENCE_BYTES,
        }
        self._names = 0

    def add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def bind(self, prefix: str, value: Any) -> str:
        self._names += 1
        name = f"{prefix}{self._names}"
        self.scope[name] = value
        return name

    def compile(self, title: str) -> Callable[..., Any]:
        exec(compile("\n".join(self.lines), f"<{title}>", "exec"), self.scope)
        function: Callable[..., Any] = self.scope["function"]
        return function


def _in_version(message: type[Message], version: int) -> tuple[list[Field], list[Field]]:
    plain: list[Field] = []
    tagged: list[Field] = []
    for field in message.FIELDS:
        if field.first <= version <= field.last:
            (tagged if version >= field.tagged else plain).append(field)
    return plain, sorted(tagged, key=lambda f: f.tag)


# ---------------------------------------------------------------- reading


def _read_length(
    src: _Source, depth: int, field: Field, version: int, flexible: bool, wide: bool
) -> bool:
    """Emit code that stores the length in `k`, -1 for null. Return True if null is allowed."""
    if flexible:
        read_long = "read_uvarint" if wide else "read_string_length"
        src.add(depth, "k = b[p]; p += 1")
        src.add(depth, f"if k > 127: k, p = {read_long}(b, p - 1)")
        src.add(depth, "k -= 1")
    else:
        unpack = src.bind("u", Struct(">i" if wide else ">h").unpack_from)
        src.add(depth, f"(k,) = {unpack}(b, p); p += {4 if wide else 2}")
    nullable = version >= field.nullable
    if not nullable:
        src.add(depth, f"if k < 0: raise bad_null({field.name!r})")
    return nullable


def _read_value(
    src: _Source, depth: int, field: Field, version: int, flexible: bool, target: str
) -> None:
    """Emit code that reads one element (not an array) of the field's type into `target`."""
    kind = field.type
    if not isinstance(kind, str):
        reader = src.bind("r", _reader(kind, version, flexible))
        if version >= field.nullable and not field.is_array:
            src.add(depth, "k = b[p]; p += 1")
            src.add(depth, f"if k {'< 1' if version >= field.tagged else '> 127'}: {target} = None")
            src.add(depth, f"else: {target}, p = {reader}(b, p, n, c)")
        else:
            src.add(depth, f"{target}, p = {reader}(b, p, n, c)")
        return
    if kind in _FIXED:
        packer = Struct(">" + _FIXED[kind])
        unpack = src.bind("u", packer.unpack_from)
        src.add(depth, f"({target},) = {unpack}(b, p); p += {packer.size}")
        return
    nullable = _read_length(src, depth, field, version, flexible, wide=kind != "string")
    convert = {"string": 'str(b[p:e], "utf-8")', "bytes": "bytes(b[p:e])", "records": "b[p:e]"}
    if nullable and not field.is_array:
        src.add(depth, f"if k < 0: {target} = None")
        src.add(depth, "else:")
        depth += 1
    src.add(depth, "e = p + k")
    src.add(depth, f"if e > n: raise too_long({field.name!r}, k, n - p)")
    src.add(depth, f"{target} = {convert[kind]}; p = e")


def _read_field(
    src: _Source, depth: int, field: Field, version: int, flexible: bool, target: str
) -> None:
    if not field.is_array:
        _read_value(src, depth, field, version, flexible, target)
        return
    nullable = _read_length(src, depth, field, version, flexible, wide=True)
    if nullable:
        src.add(depth, f"if k < 0: {target} = None")
        src.add(depth, "else:")
        depth += 1
    src.add(depth, f"if k > n - p: raise too_long({field.name!r}, k, n - p)")
    src.add(depth, f"if k > MAX_ELEMENTS: raise bad_count({field.name!r}, k)")
    src.add(depth, "c[0] -= k")
    src.add(depth, f"if c[0] < 0: raise too_many({field.name!r})")
    if field.type in _FIXED:
        packer = Struct(">" + _FIXED[field.type])
        structure = src.bind("S", Struct)
        src.add(depth, f"e = p + k * {packer.size}")
        src.add(depth, f"if e > n: raise too_long({field.name!r}, k, n - p)")
        if field.type == "uuid":
            src.add(depth, f"{target} = [bytes(b[i:i + 16]) for i in range(p, e, 16)]; p = e")
        else:
            text = f"f'>{{k}}{_FIXED[field.type]}'"
            ready = src.bind("L", _array_structs(_FIXED[field.type]))
            unpack = f"({ready}[k] if k < {_READY_COUNTS} else {structure}({text})).unpack_from"
            src.add(depth, f"{target} = list({unpack}(b, p)); p = e")
        return
    src.add(depth, "a = []")
    src.add(depth, "for _ in range(k):")
    _read_value(src, depth + 1, field, version, flexible, "x")
    src.add(depth + 1, "a.append(x)")
    src.add(depth, f"{target} = a")


def _read_tagged(src: _Source, tagged: list[Field], version: int) -> None:
    src.add(1, "t = b[p]; p += 1")
    src.add(1, "if t:")
    src.add(2, "if t > 127: t, p = read_uvarint(b, p - 1)")
    src.add(2, "if t > MAX_TAGS: raise ProtocolViolation(f'{t} tagged fields')")
    src.add(2, "for _ in range(t):")
    src.add(3, "g = b[p]; p += 1")
    src.add(3, "if g > 127: g, p = read_uvarint(b, p - 1)")
    src.add(3, "z = b[p]; p += 1")
    src.add(3, "if z > 127: z, p = read_uvarint(b, p - 1)")
    src.add(3, "q = p + z")
    src.add(3, "if q > n: raise too_long('tagged field', z, n - p)")
    for index, field in enumerate(tagged):
        src.add(3, f"{'el' if index else ''}if g == {field.tag}:")
        _read_field(src, 4, field, version, True, f"m.{field.name}")
        src.add(4, "if p != q: raise ProtocolViolation(f'tagged field {g} has a wrong size')")
    src.add(3, "p = q")


Reader = Callable[[Bytes, int, int, list[int]], tuple[Any, int]]
_readers: Final[dict[tuple[type[Message], int, bool], Reader]] = {}


def _reader(message: type[Message], version: int, flexible: bool) -> Reader:
    """Return a function (buffer, position, end, elements left) -> (message, position after it)."""
    reader = _readers.get((message, version, flexible))
    if reader is None:
        reader = _readers[message, version, flexible] = _make_reader(message, version, flexible)
    return reader


def _make_reader(message: type[Message], version: int, flexible: bool) -> Reader:
    src = _Source()
    plain, tagged = _in_version(message, version)
    src.scope["new"] = object.__new__
    src.scope["cls"] = message
    src.add(0, "def function(b, p, n, c):")
    src.add(1, "m = new(cls)")
    present = {f.name for f in plain}
    for field in message.FIELDS:
        if field.name not in present:
            value = default_of(field)
            if isinstance(value, list):
                src.add(1, f"m.{field.name} = []")
            elif isinstance(value, Message):
                src.add(1, f"m.{field.name} = {src.bind('c', field.type)}()")
            else:
                src.add(1, f"m.{field.name} = {src.bind('d', value)}")
    run: list[Field] = []

    def flush() -> None:
        if run:
            packer = Struct(">" + "".join(_FIXED[f.type] for f in run))
            targets = ", ".join(f"m.{f.name}" for f in run)
            unpack = src.bind("u", packer.unpack_from)
            src.add(1, f"({targets},) = {unpack}(b, p); p += {packer.size}")
            run.clear()

    for field in plain:
        if field.type in _FIXED and not field.is_array:
            run.append(field)
            continue
        flush()
        _read_field(src, 1, field, version, flexible, f"m.{field.name}")
    flush()
    if flexible:
        _read_tagged(src, tagged, version)
    src.add(1, "return m, p")
    return src.compile(f"read {message.__qualname__} v{version}")


def decode(
    message: type[M],
    version: int,
    buffer: Bytes,
    position: int = 0,
    max_elements: int = _UNLIMITED,
) -> tuple[M, int]:
    """Read a message of a version; return it and the position after it.

    `records` fields are slices of the buffer: pass a memoryview to avoid copies. `max_elements`
    limits the elements of all arrays of the message together, and with them time and memory: three
    bytes can become an object of a hundred.

    Raises:
        TooManyElements: there are more than `max_elements`.
        ProtocolViolation: the bytes are not such a message.
    """
    flexible = version >= message.FLEXIBLE_FROM
    reader = _readers.get((message, version, flexible)) or _reader(message, version, flexible)
    try:
        decoded: tuple[M, int] = reader(buffer, position, len(buffer), [max_elements])
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"{message.__name__} v{version}: {error}") from None
    return decoded


# ---------------------------------------------------------------- writing


class EncodedStructs(Sequence[M]):
    """An array of structs whose bytes are kept from an earlier response.

    A field of a message may have it in place of a list: `encode_parts` copies nothing and sends
    these bytes. Otherwise it is a sequence, which decodes its structs when they are read.
    """

    def __init__(
        self, struct: type[M], parent: type[Message], version: int, count: int, data: Bytes
    ) -> None:
        """Keep `data`: `count` structs, one after the other, as `encode_struct` returns them.

        Args:
            parent: the class of the request or response, which decides on the encoding.
        """
        self.data = data
        self._count = count
        self._read = _reader(struct, version, version >= parent.FLEXIBLE_FROM)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[M]:
        position, size, budget = 0, len(self.data), [_UNLIMITED]
        for _ in range(self._count):
            struct, position = self._read(self.data, position, size, budget)
            yield struct

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> list[M]: ...
    def __getitem__(self, index: int | slice) -> M | list[M]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to a list, which has none


def encode_struct(struct: Message, parent: type[Message], version: int) -> bytes:
    """Return the bytes of a struct inside a request or response of class `parent`."""
    out = bytearray()
    references: list[Reference] = []
    _writer(type(struct), version, version >= parent.FLEXIBLE_FROM)(struct, out, references)
    return b"".join(_in_order(out, references))


def _write_length(src: _Source, depth: int, flexible: bool, wide: bool, extra: int = 1) -> None:
    """Emit code that writes the length in `k` (-1 for null)."""
    if flexible:
        large = "large" if wide else "large_string"
        src.add(depth, f"out += UV[k + 1] if k < 16000 else {large}(k + 1)")
    else:
        pack = src.bind("p", Struct(">i" if wide else ">h").pack)
        src.add(depth, f"out += {pack}(k)")


def _large_uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def _large_string_length(value: int) -> bytes:
    if value > MAX_STRING_BYTES + 1:
        raise StructError(f"string of {value - 1} bytes, at most {MAX_STRING_BYTES} are allowed")
    return _large_uvarint(value)


def _cut(text: bytes) -> bytes:
    """Return the beginning of a UTF-8 text that fits a string, in whole characters."""
    return text[:MAX_STRING_BYTES].decode(errors="ignore").encode()


def _write_value(
    src: _Source, depth: int, field: Field, version: int, flexible: bool, value: str
) -> None:
    kind = field.type
    nullable = version >= field.nullable and not field.is_array
    if not isinstance(kind, str):
        writer = src.bind("w", _writer(kind, version, flexible))
        if nullable:
            null = 0 if version >= field.tagged else 255  # -1 as a byte
            src.add(depth, f"out.append({null} if {value} is None else 1)")
            src.add(depth, f"if {value} is not None:")
            depth += 1
        src.add(depth, f"{writer}({value}, out, refs)")
        return
    if kind in _FIXED:
        pack = src.bind("p", Struct(">" + _FIXED[kind]).pack)
        src.add(depth, f"out += {pack}({value})")
        return
    wide = kind != "string"
    if nullable:
        src.add(depth, f"if {value} is None:")
        src.add(depth + 1, "k = -1")
        _write_length(src, depth + 1, flexible, wide)
        src.add(depth, "else:")
        depth += 1
    if kind == "string":
        src.add(depth, f"s = {value}.encode()")
        if field.name == _ERROR_MESSAGE:  # it may quote a value of the request, which is as long
            src.add(depth, f"if len(s) > {MAX_STRING_BYTES}: s = {src.bind('cut', _cut)}(s)")
    else:
        src.add(depth, f"s = {value}")
    src.add(depth, "k = len(s)")
    _write_length(src, depth, flexible, wide)
    if kind == "records":
        src.add(depth, "if k >= BY_REFERENCE: refs.append((len(out), s))")
        src.add(depth, "else: out += s")
    else:
        src.add(depth, "out += s")


def _write_field(
    src: _Source, depth: int, field: Field, version: int, flexible: bool, value: str
) -> None:
    if not field.is_array:
        _write_value(src, depth, field, version, flexible, value)
        return
    src.add(depth, f"a = {value}")
    if version >= field.nullable:
        src.add(depth, "if a is None:")
        src.add(depth + 1, "k = -1")
        _write_length(src, depth + 1, flexible, True)
        src.add(depth, "else:")
        depth += 1
    src.add(depth, "k = len(a)")
    _write_length(src, depth, flexible, True)
    if field.type in _FIXED and field.type != "uuid":
        structure = src.bind("S", Struct)
        ready = src.bind("L", _array_structs(_FIXED[field.type]))
        text = f"f'>{{k}}{_FIXED[field.type]}'"
        src.add(
            depth, f"out += ({ready}[k] if k < {_READY_COUNTS} else {structure}({text})).pack(*a)"
        )
        return
    if not isinstance(field.type, str):
        encoded = src.bind("E", EncodedStructs)
        src.add(depth, f"if type(a) is {encoded}: refs.append((len(out), a.data))")
        src.add(depth, "else:")
        depth += 1
    src.add(depth, "for x in a:")
    _write_value(src, depth + 1, field, version, flexible, "x")


def _differs(src: _Source, field: Field, value: str) -> str:
    """Return an expression that is true unless the field has its default."""
    default = default_of(field)
    if isinstance(default, Message):
        # Compare field by field: equality of messages takes as long as writing the rest of them.
        null = [f"{value} is None"] if field.nullable != NEVER else []
        return " or ".join(null + [_differs(src, f, f"{value}.{f.name}") for f in default.FIELDS])
    return f"{value} != {src.bind('d', default)}"


def _write_tagged(src: _Source, tagged: list[Field], version: int) -> None:
    if not tagged:
        src.add(1, "out.append(0)")
        return
    src.add(1, "tags = []")
    src.add(1, "main, main_refs = out, refs")
    for field in tagged:
        src.add(1, f"if {_differs(src, field, f'm.{field.name}')}:")
        src.add(2, "out = bytearray(); refs = []")
        _write_field(src, 2, field, version, True, f"m.{field.name}")
        src.add(2, f"tags.append(({field.tag}, out, refs))")
    src.add(1, "out, refs = main, main_refs")
    src.add(1, "if not tags:")
    src.add(2, "out.append(0)")
    src.add(2, "return")
    varint = "out += UV[{0}] if {0} < 16000 else large({0})"
    src.add(1, varint.format("len(tags)"))
    src.add(1, "for g, body, body_refs in tags:")
    src.add(2, varint.format("g"))
    src.add(2, "k = len(body) + sum([len(r[1]) for r in body_refs]) if body_refs else len(body)")
    src.add(2, varint.format("k"))
    src.add(2, "refs += [(len(out) + at, data) for at, data in body_refs] if body_refs else ()")
    src.add(2, "out += body")


Writer = Callable[[Any, bytearray, list[Reference]], None]
_writers: Final[dict[tuple[type[Message], int, bool], Writer]] = {}


def _writer(message: type[Message], version: int, flexible: bool) -> Writer:
    """Return a function (message, out, references) that appends the encoded message to `out`."""
    writer = _writers.get((message, version, flexible))
    if writer is None:
        writer = _writers[message, version, flexible] = _make_writer(message, version, flexible)
    return writer


def _make_writer(message: type[Message], version: int, flexible: bool) -> Writer:
    src = _Source()
    src.scope["large"] = _large_uvarint
    src.scope["large_string"] = _large_string_length
    plain, tagged = _in_version(message, version)
    src.add(0, "def function(m, out, refs):")
    run: list[Field] = []

    def flush() -> None:
        if run:
            pack = src.bind("p", Struct(">" + "".join(_FIXED[f.type] for f in run)).pack)
            src.add(1, f"out += {pack}({', '.join(f'm.{f.name}' for f in run)})")
            run.clear()

    for field in plain:
        if field.type in _FIXED and not field.is_array:
            run.append(field)
            continue
        flush()
        _write_field(src, 1, field, version, flexible, f"m.{field.name}")
    flush()
    if flexible:
        _write_tagged(src, tagged, version)
    src.add(1, "return")
    return src.compile(f"write {message.__qualname__} v{version}")


def encode_parts(message: Message, version: int, prefix: bytes = b"") -> list[Bytes]:
    """Return the encoded message behind `prefix`, as pieces to be sent in order.

    Large record sets are the very objects of the message; they are not copied.

    Raises:
        StructError: a value does not fit its field (a bug of the caller).
    """
    cls = type(message)
    out = bytearray(prefix)
    references: list[Reference] = []
    flexible = version >= cls.FLEXIBLE_FROM
    writer = _writers.get((cls, version, flexible)) or _writer(cls, version, flexible)
    writer(message, out, references)
    return _in_order(out, references)


def _in_order(out: bytearray, references: list[Reference]) -> list[Bytes]:
    if not references:
        return [out]
    parts: list[Bytes] = []
    start = 0
    view = memoryview(out)
    for at, data in references:
        parts.append(view[start:at])
        parts.append(data)
        start = at
    if start < len(out):
        parts.append(view[start:])
    return parts


def encode(message: Message, version: int, prefix: bytes = b"") -> bytes:
    """Return the encoded message in one piece, behind `prefix`."""
    return b"".join(encode_parts(message, version, prefix))


__all__ = [
    "EMPTY",
    "EncodedStructs",
    "TooManyElements",
    "decode",
    "encode",
    "encode_parts",
    "encode_struct",
    "read_uvarint",
]
