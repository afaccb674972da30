"""The options of Kafka's tools, and how a tool reports a failure to people and to scripts."""

from collections.abc import Sequence

import click
import pytest

from spindle.cli.dialect import KAFKA_VERSION, Dialect
from spindle.cli.kafka_home.kafka_mode import run_tool
from spindle.cli.main import run, spindle
from spindle.cli.tools.command import ToolCommand, ToolGroup
from spindle.cli.tools.failures import ToolFailed, UsageError
from spindle.cli.tools.features import features
from spindle.cli.tools.options import (
    BOOTSTRAP_CONTROLLER,
    BOOTSTRAP_SERVER,
    Declaration,
    Option,
    Options,
)
from tools import parsed

DECLARATION = Declaration(
    "A tool.",
    [
        Option("topic", "A topic.", "topic"),
        Option("count", "A number.", "count"),
        Option("keys", "Keys.", "k1,k2", separator=","),
        Option("state", "A state.", "state", may_lack_value=True),
        Option("props", "Properties.", "k=v", takes_several=True),
        Option("list", "List."),
        BOOTSTRAP_SERVER,
        BOOTSTRAP_CONTROLLER,
    ],
)


def test_values_stand_behind_a_space_or_an_equals_sign() -> None:
    options = parsed(DECLARATION, ["--topic", "a", "--count=-5", "--list"])
    assert options.one("topic") == "a"
    assert options.integer("count") == -5
    assert options.has("list")
    assert not options.has("state")


def test_a_value_may_look_like_an_option() -> None:
    assert parsed(DECLARATION, ["--topic", "--list"]).one("topic") == "--list"
    assert parsed(DECLARATION, ["--count", "-1"]).integer("count") == -1


def test_a_separator_makes_several_values() -> None:
    options = parsed(DECLARATION, ["--keys", "a,b", "--keys", "c"])
    assert options.all("keys") == ["a", "b", "c"]


def test_an_option_takes_several_words() -> None:
    options = parsed(DECLARATION, ["--props", "a=1", "b=2", "--list", "--props", "c=3"])
    assert options.all("props") == ["a=1", "b=2", "c=3"]


def test_the_order_of_the_options_is_kept() -> None:
    options = parsed(DECLARATION, ["--topic", "a", "--list", "--count", "1", "--topic", "b"])
    assert [(option.name, option.value) for option in options.given] == [
        ("topic", "a"),
        ("list", None),
        ("count", "1"),
        ("topic", "b"),
    ]


@pytest.mark.parametrize(
    ("words", "value"),
    [(["--state"], None), (["--state", "Empty"], "Empty"), (["--state", "--list"], None)],
)
def test_an_option_that_works_alone(words: list[str], value: str | None) -> None:
    options = parsed(DECLARATION, words)
    assert options.has("state")
    assert options.one("state") == value


def test_the_environment_names_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPINDLE_BOOTSTRAP", "a:1,b:2")
    assert parsed(DECLARATION, ["--list"]).one("bootstrap-server") == "a:1,b:2"
    assert parsed(DECLARATION, ["-b", "c:3"]).one("bootstrap-server") == "c:3"
    by_controller = parsed(DECLARATION, ["--bootstrap-controller", "d:4"])
    assert not by_controller.has("bootstrap-server")


def test_white_space_in_the_environment_does_not_split_the_addresses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPINDLE_BOOTSTRAP", " a:1, b:2 ")
    assert parsed(DECLARATION, ["--list"]).one("bootstrap-server") == "a:1, b:2"
    monkeypatch.setenv("SPINDLE_BOOTSTRAP", " ")
    assert not parsed(DECLARATION, ["--list"]).has("bootstrap-server")
    assert run(["brokers", "list"]) == 2
    assert "No cluster is given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["topic", "describe", "a", ""], "NAME"),
        (["transactions", "describe", ""], "ID"),
        (["users", "delete", "", "-y"], "NAME"),
        (["consume", ""], "TOPIC"),
    ],
)
def test_an_empty_name_is_refused_before_the_cluster_is_asked(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "-b", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"{name} is empty"


def test_the_choices_of_a_missing_argument_stand_in_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["configs", "describe"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        "Missing argument 'TYPE'. Choose from: topic, broker, broker-logger, group, client-metrics"
    )


def test_an_option_of_a_group_stands_before_or_behind_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPINDLE_BOOTSTRAP", "a:1")
    seen: list[str | None] = []
    part = ToolCommand(
        "part", Declaration("A part.", ()), lambda o: seen.append(o.one("bootstrap-server"))
    )
    group = ToolGroup("group", Declaration("A group.", [BOOTSTRAP_SERVER]), [part])
    for words in (["-b", "c:3", "part"], ["part", "-b", "c:3"], ["part"]):
        group.main(words, standalone_mode=False)
    assert seen == ["c:3", "c:3", "a:1"]


def test_refusals_come_when_a_value_is_used() -> None:
    options = parsed(DECLARATION, ["--topic", "a", "--topic", "b", "--count", "x"])
    with pytest.raises(ToolFailed, match="Found multiple arguments for option topic"):
        options.one("topic")
    with pytest.raises(ToolFailed, match="Cannot parse argument 'x' of option count") as caught:
        options.integer("count")
    assert caught.value.plainly == "--count x: a whole number is needed"


def test_missing_and_forbidden_options_are_refused() -> None:
    options = parsed(DECLARATION, ["--topic", "a", "--list"])
    with pytest.raises(UsageError, match=r'Missing required argument "\[count\]"'):
        options.require("topic", "count")
    with pytest.raises(UsageError, match=r'"\[topic\]" can\'t be used with option "\[list\]"'):
        options.forbid("topic", "count", "list")
    options.forbid("count", "list")
    with pytest.raises(UsageError, match="choose") as caught:
        options.exactly_one("choose", "topic", "list")
    assert caught.value.plainly == "Give exactly one of --topic, --list."


# -- to scripts, as Kafka's tools


def _body(options: Options) -> None:
    options.require("topic")
    raise ToolFailed("it failed", "java.lang.Failure", "it did not work")


TOOL = ToolCommand("tool", DECLARATION, _body)


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ([], 1, "", "A tool.\nOption"),
        (["--help"], 1, "", "A tool.\nOption"),
        (["--version"], 0, f"{KAFKA_VERSION}\n", ""),
        (["--list"], 1, "", 'Missing required argument "[topic]"\nOption'),
        (["--topic", "a"], 1, "", "it failed\n"),
        (["--topic", "a", "ignored"], 1, "", "it failed\n"),
        (["--nosuch"], 1, "", "nosuch is not a recognized option\n"),
        (["--to"], 1, "", "to is not a recognized option\n"),
        (["-x"], 1, "", "x is not a recognized option\n"),
        (["--topic"], 1, "", "Option topic requires an argument\n"),
        (["--list=1"], 1, "", "list takes no argument\n"),
    ],
)
def test_a_tool_speaks_to_scripts_as_kafkas_does(
    words: list[str], code: int, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool(TOOL, "kafka-tool", words) == code
    captured = capsys.readouterr()
    assert captured.out == out
    assert captured.err.startswith(err)


def test_the_table_for_scripts_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    run_tool(TOOL, "kafka-tool", ["--help"])
    usage = capsys.readouterr().err
    assert all(f"--{name}" in usage for name in ("topic <topic>", "list", "help", "version"))


@pytest.mark.parametrize(
    ("words", "err"),
    [
        ([], "kafka-group: error: too few arguments"),
        (["x"], "kafka-group: error: invalid choice: 'x' (choose from 'part')"),
        (["part", "--x"], "kafka-group: error: unrecognized arguments: '--x'"),
        (["part"], "kafka-group: error: argument --id is required"),
    ],
)
def test_a_tool_with_commands_speaks_to_scripts_as_kafkas_does(
    words: list[str], err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def body(options: Options) -> None:
        raise UsageError("argument --id is required")

    part = ToolCommand("part", Declaration("A part.", ()), body)
    group = ToolGroup("group", Declaration("A group.", ()), [part])
    assert run_tool(group, "kafka-group", words) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("usage: kafka-group")
    assert second == err


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_the_help_of_a_command_is_that_of_the_command(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool(features, "kafka-features", ["upgrade", word]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Usage: kafka-features upgrade ")
    assert "--dry-run" in captured.out
    assert captured.err == ""


# -- to people


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nosuch"], "No such option '--nosuch'."),
        (["--topik", "t"], "No such option '--topik'. Did you mean '--topic'?"),
        (["--topic"], "Option '--topic' requires an argument."),
        (["extra"], "Got unexpected extra argument (extra)"),
    ],
)
def test_words_that_cannot_be_read(words: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        parsed(DECLARATION, words)
    assert caught.value.format_message() == message


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (["kafka", "topics", "--creat"], "No such option '--creat'. Did you mean '--create'?\n"),
        (
            ["kafka", "topics", "--list"],
            "No cluster is given: give -b HOST:PORT, or set SPINDLE_BOOTS",
        ),
        (
            ["kafka", "topics"],
            "Give exactly one of --alter, --create, --describe, --list, --delete.\n",
        ),
        (["topisc"], "There is no command 'topisc'. Did you mean topic"),
        (["kafka", "cluster", "list"], "There is no command 'list'. Did you mean list-endpoints"),
        (["kafka", "cluster"], "Usage: spindle kafka cluster [OPTIONS] COMMAND"),
        (["kafka", "metadata-quorum", "remove-controller"], "--controller-id is missing\n"),
    ],
)
def test_a_tool_speaks_to_people(
    words: Sequence[str],
    err: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPINDLE_BOOTSTRAP", raising=False)
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(err)
    for word in ("java", "joptsimple", "kafka", "Exception"):
        assert word not in captured.err.replace("spindle kafka ", "")


def test_an_option_keeps_its_earlier_name_without_showing_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, err in (
        (["heal", "--above", "nan"], "Invalid value for '--trigger-fill': 'nan' is not"),
        (["heal", "--abov", "1"], "No such option '--abov'.\n"),
        (["heal", "--target-fil", "1"], "No such option '--target-fil'. (Did you mean one of: "),
    ):
        assert run(words) == 2
        assert capsys.readouterr().err.startswith(err)
    assert run(["heal", "--help"]) == 0
    assert "--above" not in capsys.readouterr().out
    heal = spindle.get_command(click.Context(spindle), "heal")
    assert heal is not None
    completed = {completion.value for completion in heal.shell_complete(click.Context(heal), "--")}
    assert "--trigger-fill" in completed
    assert "--above" not in completed


def test_a_failure_is_no_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kafka", "topics", "-b", "127.0.0.1:1", "--list"]) == 1
    assert capsys.readouterr().err.startswith("no broker could be reached: ")


@pytest.mark.parametrize(
    "tool", ["kafka topics", "kafka cluster", "kafka storage", "storage", "up"]
)
def test_help_goes_to_standard_output(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tool.split(), "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"Usage: spindle {tool} ")
    assert captured.err == ""


@pytest.mark.parametrize(
    "tool",
    ["disks", "topic", *(f"kafka {name}" for name in ("cluster", "features", "transactions"))],
)
def test_no_summary_of_a_command_is_cut_off(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tool.split(), "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


def test_a_script_ignores_words_that_belong_to_no_option() -> None:
    declaration = Declaration("A tool.", DECLARATION.options, words="TOPIC")
    assert parsed(declaration, ["--list", "a"]).loose_words == ("a",)
    assert parsed(declaration, ["--list", "a"], Dialect.KAFKA).loose_words == ()


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["topics", "--lst"], "kafka topics"),
        (["groups", "--describe", "--nosuch"], None),
        (["groups", "--describe", "--group=g"], "kafka consumer-groups"),
        (["transactions", "-b", "a:1", "list", "--duration-filter", "-5"], "kafka transactions"),
        (["produce", "--topic", "t", "--sync"], "kafka console-producer"),
        (["consume", "t", "--max-messages", "3"], "kafka console-consumer"),
        (["quorum", "describe", "--status"], "kafka metadata-quorum"),
        (["groups", "lst"], None),
        (["transactions", "describe"], None),
        (["produce", "t", "--nosuch"], None),
        (["configs", "--help"], None),
    ],
)
def test_an_old_command_line_runs_kafkas_tool_and_says_where_it_is_now(
    words: list[str],
    place: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPINDLE_BOOTSTRAP", raising=False)
    run([*words, "--help"])
    notice = f"spindle {words[0]} is now spindle {place}\n"
    assert capsys.readouterr().err.startswith(notice) is (place is not None)
