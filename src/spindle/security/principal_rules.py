"""`ssl.principal.mapping.rules`: from a distinguished name to a user name (KIP-371)."""

import re
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError

_KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*(?:,|\Z)")
_DEFAULT: Final = re.compile(r"DEFAULT\s*(?:,|\Z)")
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)


class _Rule(NamedTuple):
    """A rule; without a pattern, the name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    change_case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replaced = self.pattern.sub(self._replaced, name)
        if self.change_case == "L":
            return replaced.lower()
        return replaced.upper() if self.change_case == "U" else replaced

    def _replaced(self, match: re.Match[str]) -> str:
        """Return the replacement as Java's `replaceAll` makes it."""
        most = match.re.groups

        def text(found: re.Match[str]) -> str:
            if found[2] is None:
                return found[1]
            digits = found[2]
            used = 1
            # As in Java: take digits while they are the number of a group.
            while used < len(digits) and int(digits[: used + 1]) <= most:
                used += 1
            number = int(digits[:used])
            if number > most:
                return f"${digits}"
            return (match[number] or "") + digits[used:]

        return _REFERENCE.sub(text, self.replacement)


class PrincipalRules:
    """Rules that are tried in order; the first one that matches decides.

    Args:
        text: `DEFAULT`, or `RULE:pattern/replacement/` with `L` or `U` at its end, and commas
            between rules. Patterns are regular expressions for the whole name.

    Raises:
        ConfigError: a rule or its pattern is malformed.
    """

    def __init__(self, text: str) -> None:
        self._rules: Final = tuple(_parsed(text.strip()))

    def user_of(self, distinguished_name: str) -> str | None:
        """Return the user name; None if no rule matches."""
        for rule in self._rules:
            user = rule.apply(distinguished_name)
            if user is not None:
                return user
        return None


def _parsed(text: str) -> list[_Rule]:
    rules, position = [], 0
    while position < len(text):
        if text[position].isspace() or text[position] == ",":
            position += 1
            continue
        match = _DEFAULT.match(text, position)
        if match is not None:
            rules.append(_Rule())
        else:
            match = _RULE.match(text, position)
            if match is None:
                raise ConfigError(
                    f"{_KEY}: cannot parse {text[position:]!r}: want DEFAULT or "
                    "RULE:pattern/replacement/ with L or U at its end, and commas between rules"
                )
            rules.append(_Rule(_pattern(match[1]), match[2], match[3]))
        position = match.end()
    return rules


def _pattern(text: str) -> re.Pattern[str]:
    try:
        # Java writes named groups without the P.
        return re.compile(_NAMED_GROUP.sub("(?P<", text))
    except re.error as error:
        raise ConfigError(f"{_KEY}: the pattern {text!r} is malformed: {error}") from None
