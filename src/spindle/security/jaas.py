"""The login modules of `sasl.jaas.config`, in the grammar of Kafka's Java clients.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="secret";

A value is a word or stands in single or double quotes, with Java's backslash escapes. A value of
digits needs quotes, as in Kafka. Errors name positions and keys, never values.
"""

import re
from dataclasses import dataclass
from typing import Final

from spindle.common.errors import ConfigError

_KEY: Final = "sasl.jaas.config"
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<number>-?\d+(?:\.\d*)?|-?\.\d+)
      | (?P<word>[A-Za-z_$\-\u00a0-\U0010ffff][A-Za-z0-9_$.\-\u00a0-\U0010ffff]*)
      | (?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """A login module: the name of its Java class, and its options, which may be secrets."""

    class_name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.class_name}, options {', '.join(self.options)})"


def parse_jaas(text: str) -> LoginModule:
    """Return the one login module of a text.

    Raises:
        ConfigError: the text is malformed, or has no or several modules.
    """
    tokens = _tokens(text)
    modules = []
    while tokens:
        modules.append(_module(tokens))
    if len(modules) != 1:
        raise ConfigError(f"{_KEY} has {len(modules)} login modules, want one")
    return modules[0]


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return the kinds and texts of the tokens, the last one first."""
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigError(
                f"{_KEY} is malformed at character {position + 1}: want words, quoted texts, "
                "'=' and ';'. Is a quotation mark missing?"
            )
        kind = str(match.lastgroup)
        if kind == "quoted":
            tokens.append((kind, _ESCAPE.sub(_unescaped, match[0][1:-1])))
        elif kind != "blank":
            tokens.append((kind, match[0]))
        position = match.end()
    return tokens[::-1]


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return (
        chr(int(escaped, 8))
        if escaped.isdigit() and escaped < "8"
        else _ESCAPED.get(escaped, escaped)
    )


def _module(tokens: list[tuple[str, str]]) -> LoginModule:
    """Take a login module from the end of the list."""
    kind, class_name = tokens.pop()
    if kind not in ("word", "quoted"):
        raise ConfigError(f"{_KEY}: want the class of a login module, got a {kind}")
    flag = tokens.pop()[1].lower() if tokens else ""
    if flag not in _FLAGS:
        # The word may be a part of a password with a semicolon, so it is not shown.
        raise ConfigError(f"{_KEY}: want one of {', '.join(_FLAGS)} after a login module")
    options = {}
    while tokens and tokens[-1] != ("sign", ";"):
        key, value = _option(tokens)
        options[key] = value
    if not tokens:
        raise ConfigError(f"{_KEY} does not end with a semicolon")
    tokens.pop()
    return LoginModule(class_name, options)


def _option(tokens: list[tuple[str, str]]) -> tuple[str, str]:
    kind, key = tokens.pop()
    if kind not in ("word", "quoted"):
        raise ConfigError(f"{_KEY}: want the key of an option or a semicolon, got a {kind}")
    if not tokens or tokens.pop() != ("sign", "="):
        # The text in the place of a key may be a part of a password, so it is not shown.
        raise ConfigError(f"{_KEY}: a key has no '=' behind it. Is a quotation mark missing?")
    kind, value = tokens.pop() if tokens else ("", "")
    if kind not in ("word", "quoted"):
        raise ConfigError(f'{_KEY}: the value of {key} is not a text; write {key}="..."')
    return key, value
