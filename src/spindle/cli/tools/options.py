"""The options of Kafka's tools: declared with this module, parsed by click.

Long options, `--name value` or `--name=value`, without abbreviations. An option that takes a value
takes the next word whatever it looks like. Numbers are checked when they are used, so that a tool
reports missing options first, in Kafka's order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from spindle.cli.dialect import Dialect, dialect_of
from spindle.cli.tools.failures import UsageError, WrongOptions

_WITHOUT_VALUE: Final = "\0"
_GIVEN: Final = "spindle.cli.given"
_WORDS: Final = "spindle.cli.words"
LOOSE_WORDS: Final = "loose_words"
"""The name of the argument with the words that belong to no option."""
BOOTSTRAP_VARIABLE: Final = "SPINDLE_BOOTSTRAP"
WHERE_IS_THE_CLUSTER: Final = (
    f"No cluster is given: give -b HOST:PORT, or set {BOOTSTRAP_VARIABLE}."
)
N = TypeVar("N", int, float)


class Option(click.Option):
    """One option of a tool.

    Args:
        value: the name of its value in help texts; an option without one is a flag.
        separator: splits a value into several.
        may_lack_value: the option works with and without a value.
        short: a letter, for `-x`.
        aliases: further long names.
        variable: an environment variable that gives the value.
        takes_several: the option takes all words up to the next option.
    """

    def __init__(
        self,
        name: str,
        help: str,
        value: str | None = None,
        separator: str | None = None,
        may_lack_value: bool = False,
        *,
        short: str | None = None,
        aliases: Sequence[str] = (),
        variable: str | None = None,
        takes_several: bool = False,
    ) -> None:
        settings: dict[str, Any] = {"is_flag": True}
        if value is not None:
            settings = {"multiple": True, "metavar": value}
            if may_lack_value:
                settings |= {"is_flag": False, "flag_value": _WITHOUT_VALUE}
        if variable is not None:
            settings |= {"envvar": variable, "show_envvar": True}
        words = [f"--{option_name}" for option_name in (name, *aliases)]
        words += [f"-{short}"] if short else []
        identifier = name.replace("-", "_").replace(".", "_")
        super().__init__([identifier, *words], help=help, **settings)
        self.title = name
        self.separator = separator
        self.takes_several = takes_several

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the whole value; click splits that of a repeatable option at white space."""
        text = (self.resolve_envvar_value(ctx) or "").strip()
        return (text,) if text else None


class ParsedOption(NamedTuple):
    """An option of the command line; the value of a flag is None."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Declaration:
    """The options of a tool, and one sentence that says what the tool does.

    Attributes:
        words: the name, in help texts, of words that belong to no option, such as `TOPIC`; None if
            the tool takes none.
        examples: command lines for the help.
    """

    summary: str
    options: Sequence[Option]
    words: str | None = None
    examples: Sequence[str] = ()


JSON: Final = Option("json", "Print JSON, for programs.")
BOOTSTRAP_SERVER: Final = Option(
    "bootstrap-server",
    "Addresses of brokers.",
    "host:port,...",
    short="b",
    variable=BOOTSTRAP_VARIABLE,
)
BOOTSTRAP_CONTROLLER: Final = Option(
    "bootstrap-controller", "Addresses of controllers, in place of brokers.", "host:port,..."
)
COMMAND_CONFIG: Final = Option("command-config", "Property file of the client.", "file")


def note_words(command: click.Command, context: click.Context, words: Sequence[str]) -> None:
    """Keep the words of a command and the order of its options for `Options`.

    Raises:
        click.UsageError: the words cannot be read.
    """
    values, _, order = command.make_parser(context).parse_args(args=list(words))
    left = {name: list(given) for name, given in values.items() if isinstance(given, list)}
    given = []
    for parameter in order:
        if isinstance(parameter, Option) and parameter.name is not None:
            value = left[parameter.name].pop(0) if parameter.multiple else None
            given.append(ParsedOption(parameter.title, value if isinstance(value, str) else None))
    context.meta[_GIVEN] = (*context.meta.get(_GIVEN, ()), *given)
    context.meta[_WORDS] = (*context.meta.get(_WORDS, ()), *words)


class Options:
    """The given options of a command and its groups.

    Every accessor takes the name of a declared option.

    Attributes:
        words: all words of the command line.
        loose_words: those that belong to no option.
        is_script: the command runs as a script of `spindle home`, with Kafka's errors.
    """

    def __init__(self, context: click.Context) -> None:
        self.given: tuple[ParsedOption, ...] = context.meta.get(_GIVEN, ())
        self.words: tuple[str, ...] = context.meta.get(_WORDS, ())
        # Kafka's scripts ignore words that belong to no option.
        self.is_script = dialect_of(context) is Dialect.KAFKA
        self.loose_words: tuple[str, ...] = (
            () if self.is_script else context.params.get(LOOSE_WORDS, ())
        )
        self._declared: dict[str, Option] = {}
        self._values: dict[str, Sequence[str] | bool] = {}
        for ancestor in _lineage(context):
            for parameter in ancestor.command.params:
                if isinstance(parameter, Option) and parameter.name is not None:
                    self._take(ancestor, parameter, parameter.name)

    def _take(self, context: click.Context, option: Option, name: str) -> None:
        """Store the value of an option; a group and its command may both have the option."""
        value = context.params.get(name)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if option.title not in self._declared or (value and is_given):
            self._values[option.title] = value or ()
        self._declared[option.title] = option

    def has(self, name: str) -> bool:
        """Return whether the option was given."""
        assert name in self._declared, name
        return bool(self._values[name])

    def all(self, name: str) -> list[str]:
        """Return the values of an option that may be repeated."""
        assert name in self._declared, name
        values = self._values[name]
        texts = [] if isinstance(values, bool) else [v for v in values if v != _WITHOUT_VALUE]
        separator = self._declared[name].separator
        if separator is None:
            return texts
        return [part for text in texts for part in text.split(separator)]

    def one(self, name: str) -> str | None:
        """Return the value of an option, None if it was not given or given without one.

        Raises:
            WrongOptions: the option was given several times.
        """
        values = self.all(name)
        if len(values) > 1:
            raise WrongOptions(
                f"Found multiple arguments for option {name}, but you asked for only one",
                "joptsimple.MultipleArgumentsForOptionException",
                f"--{name} was given {len(values)} times; give it once",
            )
        return values[0] if values else None

    def text(self, name: str, default: str = "") -> str:
        """Return the value of an option, or a default."""
        value = self.one(name)
        return default if value is None else value

    def integer(self, name: str) -> int | None:
        """Return the value of an option as a whole number.

        Raises:
            WrongOptions: the value is no whole number.
        """
        return self._number(name, int, "a whole number")

    def real(self, name: str) -> float | None:
        """Return the value of an option as a number.

        Raises:
            WrongOptions: the value is not a number.
        """
        return self._number(name, float, "a number")

    def require(self, *names: str) -> None:
        """Require options.

        Raises:
            UsageError: names the first missing one.
        """
        for name in names:
            if not self.has(name):
                raise UsageError(f'Missing required argument "[{name}]"', missing_text(name))

    def require_servers(self) -> None:
        """Require exactly one of `--bootstrap-server` and `--bootstrap-controller`.

        Raises:
            UsageError: none or both were given.
        """
        by_server, by_controller = map(self.has, ("bootstrap-server", "bootstrap-controller"))
        if by_server and by_controller:
            raise UsageError(
                "Please don't specify both --bootstrap-server and --bootstrap-controller"
            )
        if not by_server and not by_controller:
            raise UsageError(
                "Please specify either --bootstrap-server or --bootstrap-controller",
                missing_text("bootstrap-server"),
            )

    def forbid(self, used: str, *others: str) -> None:
        """Refuse combinations with an option.

        Raises:
            UsageError: `used` was given together with one of the others.
        """
        if not self.has(used):
            return
        for other in others:
            if self.has(other):
                raise UsageError(
                    f'Option "[{used}]" can\'t be used with option "[{other}]"',
                    f"--{used} cannot be used with --{other}",
                )

    def exactly_one(self, message: str, *names: str) -> None:
        """Require exactly one of several options.

        Raises:
            UsageError: with `message`, if none or several were given.
        """
        if sum(map(self.has, names)) != 1:
            listed = ", ".join(f"--{name}" for name in names)
            raise UsageError(message, f"Give exactly one of {listed}.")

    def _number(self, name: str, convert: Callable[[str], N], kind: str) -> N | None:
        text = self.one(name)
        if text is None:
            return None
        try:
            return convert(text)
        except ValueError:
            raise WrongOptions(
                f"Cannot parse argument '{text}' of option {name}",
                "joptsimple.OptionArgumentConversionException",
                f"--{name} {text}: {kind} is needed",
            ) from None


def _lineage(context: click.Context) -> Iterable[click.Context]:
    chain: list[click.Context] = []
    ancestor: click.Context | None = context
    while ancestor is not None:
        chain.append(ancestor)
        ancestor = ancestor.parent
    return reversed(chain)


def missing_text(name: str) -> str:
    """Return the sentence about an option that a command needs."""
    if name == "bootstrap-server":
        return WHERE_IS_THE_CLUSTER
    return f"--{name} is missing"
