"""Options as Kafka's tools read them, and how a tool reports what is wrong with them."""

import pytest

from spindle.cli.tools.command import KAFKA_VERSION, tool_main
from spindle.cli.tools.failures import ToolFailed, UsageError
from spindle.cli.tools.options import Option, OptionParser, Options

PARSER = OptionParser(
    "A tool.",
    [
        Option("topic", "A topic.", "topic"),
        Option("count", "A number.", "count"),
        Option("keys", "Keys.", "k1,k2", separator=","),
        Option("state", "A state.", "state", may_lack_value=True),
        Option("list", "List."),
    ],
)


def test_values_stand_behind_a_space_or_an_equals_sign() -> None:
    options = PARSER.parse(["--topic", "a", "--count=-5", "--list"])
    assert options.one("topic") == "a"
    assert options.integer("count") == -5
    assert options.has("list")
    assert not options.has("state")


def test_a_value_may_look_like_an_option() -> None:
    assert PARSER.parse(["--topic", "--list"]).one("topic") == "--list"


def test_a_separator_makes_several_values() -> None:
    assert PARSER.parse(["--keys", "a,b", "--keys", "c"]).all("keys") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("words", "value"),
    [(["--state"], None), (["--state", "Empty"], "Empty"), (["--state", "--list"], None)],
)
def test_an_option_that_works_alone(words: list[str], value: str | None) -> None:
    options = PARSER.parse(words)
    assert options.has("state")
    assert options.one("state") == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nosuch"], "nosuch is not a recognized option"),
        (["--to"], "to is not a recognized option"),
        (["-x"], "x is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
        (["--list=1"], "list takes no argument"),
    ],
)
def test_words_that_cannot_be_read(words: list[str], message: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        PARSER.parse(words)
    assert caught.value.message == message


def test_refusals_come_when_a_value_is_used() -> None:
    options = PARSER.parse(["--topic", "a", "--topic", "b", "--count", "x"])
    with pytest.raises(ToolFailed, match="Found multiple arguments for option topic"):
        options.one("topic")
    with pytest.raises(ToolFailed, match="Cannot parse argument 'x' of option count"):
        options.integer("count")


def test_combinations() -> None:
    options = PARSER.parse(["--topic", "a", "--list"])
    with pytest.raises(UsageError, match=r'Missing required argument "\[count\]"'):
        options.require("topic", "count")
    with pytest.raises(UsageError, match=r'"\[topic\]" can\'t be used with option "\[list\]"'):
        options.forbid("topic", "count", "list")
    options.forbid("count", "list")
    with pytest.raises(UsageError, match="choose"):
        options.exactly_one("choose", "topic", "list")


def _body(options: Options) -> None:
    options.require("topic")
    raise ToolFailed("it failed", "java.lang.Failure")


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ([], 1, "", "A tool.\nOption"),
        (["--help"], 1, "", "A tool.\nOption"),
        (["--version"], 0, f"{KAFKA_VERSION}\n", ""),
        (["--list"], 1, "", 'Missing required argument "[topic]"\nOption'),
        (["--topic", "a"], 1, "", "it failed\n"),
        (["--nosuch"], 1, "", "nosuch is not a recognized option\n"),
    ],
)
def test_how_a_tool_ends(
    words: list[str], code: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool_main(PARSER, _body)(words) == code
    captured = capsys.readouterr()
    assert captured.out == out
    assert captured.err.startswith(err)


def test_the_usage_names_every_option() -> None:
    usage = PARSER.usage()
    assert all(f"--{name}" in usage for name in ("topic <topic>", "list", "help", "version"))
