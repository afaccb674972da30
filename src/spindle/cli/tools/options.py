"""Options as most of Kafka's tools read them, with the texts of their refusals.

Long options only, `--name value` or `--name=value`, no abbreviations; an option that takes a value
takes the next word whatever it looks like. Numbers are checked when they are used, so that a tool
complains about what it needs first, in Kafka's order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, TypeVar

from spindle.cli.tools.failures import HelpAsked, ToolFailed, UsageError, VersionAsked

_COLUMN: Final = 40
_WIDTH: Final = 100
_JAVA: Final = "joptsimple"
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `value` names its value; a flag has none.

    `separator` splits a value into several. `may_lack_value` is for an option that works alone,
    too.
    """

    name: str
    help: str
    value: str | None = None
    separator: str | None = None
    may_lack_value: bool = False
    short: str | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it stood on the command line."""

    name: str
    value: str | None


HELP: Final = Option("help", "Print usage information.")
VERSION: Final = Option("version", "Print the version of Kafka that the tools follow.")
JSON: Final = Option("json", "Print JSON, for programs.")
BOOTSTRAP_SERVER: Final = Option("bootstrap-server", "Addresses of brokers.", "host:port,...")
COMMAND_CONFIG: Final = Option("command-config", "Property file of the client.", "file")


class OptionParser:
    """The options of one tool.

    Args:
        summary: what the tool does, in one sentence.
    """

    def __init__(self, summary: str, options: Iterable[Option]) -> None:
        self.summary = summary
        self._options = {each.name: each for each in (*options, HELP, VERSION)}
        self._short = {each.short: each for each in self._options.values() if each.short}

    def parse(self, words: Sequence[str]) -> "Options":
        """Read a command line.

        Raises:
            HelpAsked: nothing was given, or `--help`.
            VersionAsked: `--version` was given.
            ToolFailed: an option is unknown or lacks its value.
        """
        if not words:
            raise HelpAsked(self.summary)
        given: list[Given] = []
        left = list(reversed(words))
        while left:
            word = left.pop()
            if word == "--":
                break
            if word.startswith("-") and word != "-":
                self._read(word, left, given)
        options = Options(self._options, given, words)
        if options.has("help"):
            raise HelpAsked(self.summary)
        if options.has("version"):
            raise VersionAsked
        return options

    def usage(self) -> str:
        """The options in a table, in order of their names."""
        lines = [f"{'Option':<{_COLUMN}} Description", f"{'------':<{_COLUMN}} -----------"]
        for _, each in sorted(self._options.items()):
            name = f"--{each.name}" + (f" <{each.value}>" if each.value else "")
            text = wrap(each.help, _WIDTH - _COLUMN - 1)
            if len(name) > _COLUMN:
                lines.append(name)
                name = ""
            lines += [
                f"{name if number == 0 else '':<{_COLUMN}} {line}"
                for number, line in enumerate(text)
            ]
        return "\n".join(lines)

    def _read(self, word: str, left: list[str], given: list[Given]) -> None:
        option, attached = self._find(word)
        if option.value is None:
            if attached is not None:
                raise _refused("IllegalOptionSpecification", f"{option.name} takes no argument")
            given.append(Given(option.name, None))
            return
        if attached is None:
            attached = self._next_value(option, left)
        if attached is None or option.separator is None:
            given.append(Given(option.name, attached))
            return
        given.extend(Given(option.name, part) for part in attached.split(option.separator))

    def _find(self, word: str) -> tuple[Option, str | None]:
        name, equals, value = word.lstrip("-").partition("=")
        is_long = word.startswith("--")
        option = self._options.get(name) if is_long else self._short.get(name)
        if option is None:
            shown = name if is_long else name[:1]
            raise _refused("UnrecognizedOption", f"{shown} is not a recognized option")
        return option, value if equals else None

    def _next_value(self, option: Option, left: list[str]) -> str | None:
        if option.may_lack_value:
            return left.pop() if left and not left[-1].startswith("--") else None
        if not left:
            raise _refused(
                "OptionMissingRequiredArgument", f"Option {option.name} requires an argument"
            )
        return left.pop()


class Options:
    """What was given, in order.

    Every accessor takes the name of a declared option.
    """

    def __init__(
        self, declared: dict[str, Option], given: Sequence[Given], words: Sequence[str]
    ) -> None:
        self._declared = declared
        self.given = tuple(given)
        self.words = tuple(words)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        assert name in self._declared, name
        return any(each.name == name for each in self.given)

    def all(self, name: str) -> list[str]:
        """The values of an option that may be repeated."""
        assert name in self._declared, name
        return [each.value for each in self.given if each.name == name and each.value is not None]

    def one(self, name: str) -> str | None:
        """The value of an option, None where it was not given or given without one.

        Raises:
            ToolFailed: it was given several times.
        """
        values = self.all(name)
        if len(values) > 1:
            raise _refused(
                "MultipleArgumentsForOption",
                f"Found multiple arguments for option {name}, but you asked for only one",
            )
        return values[0] if values else None

    def text(self, name: str, default: str = "") -> str:
        """The value of an option, or a default."""
        value = self.one(name)
        return default if value is None else value

    def integer(self, name: str) -> int | None:
        """The value of an option as a whole number.

        Raises:
            ToolFailed: it is none.
        """
        return self._number(name, int)

    def real(self, name: str) -> float | None:
        """The value of an option as a number.

        Raises:
            ToolFailed: it is none.
        """
        return self._number(name, float)

    def require(self, *names: str) -> None:
        """Insist on options.

        Raises:
            UsageError: the first that was not given.
        """
        for name in names:
            if not self.has(name):
                raise UsageError(f'Missing required argument "[{name}]"')

    def forbid(self, used: str, *others: str) -> None:
        """Refuse combinations with an option.

        Raises:
            UsageError: `used` was given, and one of the others.
        """
        if not self.has(used):
            return
        for other in others:
            if self.has(other):
                raise UsageError(f'Option "[{used}]" can\'t be used with option "[{other}]"')

    def exactly_one(self, message: str, *names: str) -> None:
        """Insist on one of several.

        Raises:
            UsageError: with `message`, when none or several were given.
        """
        if sum(map(self.has, names)) != 1:
            raise UsageError(message)

    def _number(self, name: str, convert: Callable[[str], N]) -> N | None:
        text = self.one(name)
        if text is None:
            return None
        try:
            return convert(text)
        except ValueError:
            raise _refused(
                "OptionArgumentConversion", f"Cannot parse argument '{text}' of option {name}"
            ) from None


def _refused(kind: str, message: str) -> ToolFailed:
    return ToolFailed(message, f"{_JAVA}.{kind}Exception")
