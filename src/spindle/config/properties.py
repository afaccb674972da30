"""Java's properties format, in which `server.properties` and `meta.properties` are written.

A key that occurs twice has the value of its last line, as in Java. Comments are dropped.
"""

from collections.abc import Iterator, Mapping

from spindle.common.errors import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str) -> dict[str, str]:
    """Return the properties of a file.

    Raises:
        ConfigError: the file has a malformed escape; the error names file and line.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return parse_properties(decode_properties(file.read()), source=path)


def decode_properties(data: bytes) -> str:
    """Decode bytes as UTF-8, or else as ISO-8859-1, the encoding of Java's own format."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def parse_properties(text: str, source: str = "properties") -> dict[str, str]:
    """Return the properties of a text, in the order of their first lines.

    Args:
        source: the name of the text in error messages.

    Raises:
        ConfigError: a `\\u` escape is not followed by four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        try:
            key, value = _split(line)
        except ValueError as error:
            raise ConfigError(f"{source}, line {number}: {error}") from None
        properties[key] = value
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each logical line and the number of its first natural line.

    Comments and blank lines are left out.
    """
    pending = ""
    first = 0
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(natural, start=1):
        line = line.lstrip(_BLANK)
        if not pending:
            # A line that begins with a bare backslash may continue with a comment.
            first = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _split(line: str) -> tuple[str, str]:
    """Return key and value of a logical line.

    The key ends at the first `=`, `:` or blank that is not escaped.
    """
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (slash := text.find("\\", position)) >= 0:
        parts.append(text[position:slash])
        escape = text[slash + 1 : slash + 2]
        if escape == "u":
            digits = text[slash + 2 : slash + 6]
            if len(digits) != 4 or not all(c in "0123456789abcdefABCDEF" for c in digits):
                raise ValueError(f"malformed escape '\\u{digits}': want four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position = slash + 6
        else:
            parts.append(_ESCAPES.get(escape, escape))
            position = slash + 2
    parts.append(text[position:])
    # Java writes a character beyond U+FFFF as two escapes, a surrogate pair.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def format_properties(properties: Mapping[str, str]) -> str:
    """Return `key=value` lines that `parse_properties` and Java read as the same properties."""
    return "".join(
        f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n"
        for key, value in properties.items()
    )


def _escape(text: str, *, is_key: bool) -> str:
    parts: list[str] = []
    for index, character in enumerate(text):
        if character in "\t\n\r\f":
            parts.append("\\" + "tnrf"["\t\n\r\f".index(character)])
        elif character in "\\=:#!" or (character == " " and (is_key or index == 0)):
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            encoded = character.encode("utf-16-be", "surrogatepass")
            parts.extend(
                f"\\u{encoded[i : i + 2].hex().upper()}" for i in range(0, len(encoded), 2)
            )
    return "".join(parts)
