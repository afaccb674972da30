"""Run a tool for one of Kafka's scripts: the texts, streams and exit codes of Kafka's tools.

Most of Kafka's tools read their options with joptsimple. The tools with sub-commands, and the load
test of the producer, use argparse4j. Each library has its own error texts.
"""

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

import click
from click.exceptions import NoArgsIsHelpError

from spindle.cli.dialect import Dialect
from spindle.cli.suggestions import UnknownCommand
from spindle.cli.tools.command import HelpAsked, ToolCommand
from spindle.cli.tools.failures import (
    FAILURES,
    TERSE,
    ExecutionFailed,
    Failure,
    ToolFailed,
    UsageError,
    failure,
)
from spindle.cli.tools.kafka_log import log_line
from spindle.cli.tools.options import Option
from spindle.common.errors import ApiError

_FAILED: Final = 1
_COLUMN: Final = 40
_WIDTH: Final = 100
_ERRORS: Final = "org.apache.kafka.common.errors."

Report = Callable[[Failure], int]


class ErrorStyle(NamedTuple):
    """The functions that print the errors of a tool of Kafka.

    Attributes:
        failed: a failure.
        unreadable: words that joptsimple cannot read; `failed` by default.
        execution: a failure after the options were checked; `failed` by default. It also receives
            the words of the command.
    """

    failed: Report
    unreadable: Report | None = None
    execution: Callable[[Failure, Exception, Sequence[str]], int] | None = None


def run_tool(tool: click.Command, script: str, words: Sequence[str]) -> int:
    """Run a tool by the words of its script and return the exit code.

    Args:
        script: the name of Kafka's script, without `.sh`.
    """
    texts = _TEXTS.get(str(tool.name), _PLAIN)
    is_simple = isinstance(tool, ToolCommand) and tool.name not in _ARGPARSE
    try:
        if is_simple and not words:
            return _show_usage(tool, tool.help or "")
        context = tool.make_context(script, list(words), obj=Dialect.KAFKA)
        with context:
            return int(tool.invoke(context) or 0)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except HelpAsked as asked:
        if is_simple:
            return _show_usage(tool, tool.help or "")
        click.echo(asked.context.get_help())
        return 0
    except UsageError as error:
        if is_simple:
            return _show_usage(tool, error.message)
        return _argparse_refusal(tool, script, click.UsageError(error.message))
    except click.UsageError as error:
        if is_simple:
            try:
                return (texts.unreadable or texts.failed)(_joptsimple(tool, error))
            except UsageError as shown:
                return _show_usage(tool, shown.message)
        return _argparse_refusal(tool, script, error)
    except ExecutionFailed as error:
        reason = failure(error.cause)
        if texts.execution is None:
            return texts.failed(reason)
        return texts.execution(reason, error.cause, words)
    except FAILURES as error:
        return texts.failed(failure(error))


def usage_table(tool: click.Command) -> str:
    """Return the options in a table, in the order of their names, as joptsimple prints them."""
    lines = [f"{'Option':<{_COLUMN}} Description", f"{'------':<{_COLUMN}} -----------"]
    rows = [("--help", "Print usage information."), ("--version", "Print the version of Kafka.")]
    for parameter in tool.params:
        if isinstance(parameter, Option):
            value = f" <{parameter.metavar}>" if parameter.multiple else ""
            rows.append((f"--{parameter.title}{value}", parameter.help or ""))
    for title, help_text in sorted(rows):
        name = title
        if len(name) > _COLUMN:
            lines.append(name)
            name = ""
        for number, line in enumerate(wrap(help_text, _WIDTH - _COLUMN - 1)):
            lines.append(f"{name if number == 0 else '':<{_COLUMN}} {line}")
    return "\n".join(lines)


def _show_usage(tool: click.Command, message: str) -> int:
    click.echo(message, err=True)
    click.echo(usage_table(tool), err=True)
    return _FAILED


def _joptsimple(tool: click.Command, error: click.UsageError) -> Failure:
    """Return joptsimple's exception for words that click cannot read."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        shown = name[2:] if name.startswith("--") else name[1:2]
        return _joptsimple_failure("UnrecognizedOption", f"{shown} is not a recognized option")
    if isinstance(error, click.BadOptionUsage):
        options = [parameter for parameter in tool.params if error.option_name in parameter.opts]
        is_flag = any(isinstance(option, click.Option) and option.is_flag for option in options)
        name = error.option_name.lstrip("-")
        if is_flag:
            return _joptsimple_failure("IllegalOptionSpecification", f"{name} takes no argument")
        return _joptsimple_failure(
            "OptionMissingRequiredArgument", f"Option {name} requires an argument"
        )
    return _joptsimple_failure("Option", error.format_message())


def _joptsimple_failure(kind: str, message: str) -> Failure:
    return Failure(message, f"joptsimple.{kind}Exception", message)


def _argparse_refusal(tool: click.Command, script: str, error: click.UsageError) -> int:
    """Print argparse4j's line, with the usage of the command."""
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = f"unrecognized arguments: '{error.option_name}'"
    elif isinstance(error, UnknownCommand):
        choices = ", ".join(f"'{choice}'" for choice in error.choices)
        message = f"invalid choice: '{error.name}' (choose from {choices})"
    elif isinstance(error, NoArgsIsHelpError):
        message = "too few arguments"
    if tool.name == "features":
        click.echo(f"Command line error: {message}. Type --help for help.", err=True)
        return _FAILED
    context = error.ctx or click.Context(tool, info_name=script)
    usage = context.get_usage().replace("Usage:", "usage:", 1)
    click.echo(f"{usage}\n{_ARGPARSE.get(str(tool.name), script)}: error: {message}", err=True)
    return _FAILED


def _plain(found: Failure) -> int:
    click.echo(found.text, err=True)
    return _FAILED


def _with_class(found: Failure) -> int:
    click.echo(str(found), err=True)
    return _FAILED


def _uncaught(found: Failure) -> int:
    """Print the text, and the exception as Java prints an uncaught one."""
    click.echo(found.text, err=True)
    click.echo(f"{found}\n", err=True)
    return _FAILED


def _refusal_with_class(found: Failure) -> int:
    return _with_class(found) if found.java_class.startswith(_ERRORS) else _plain(found)


def _as_usage(found: Failure) -> int:
    raise UsageError(found.text)


def _get_offsets(found: Failure) -> int:
    click.echo(f"Error occurred: {found.text}", err=True)
    return _FAILED


def _topics(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    click.echo(f"Error while executing topic command : {found.text}")
    log_line("ERROR", f"{found}\n", "org.apache.kafka.tools.TopicCommand")
    return _FAILED


def _configs(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    if isinstance(cause, ToolFailed):
        return _plain(found)
    click.echo(f"Error while executing config command with args '{' '.join(words)}'", err=True)
    click.echo(f"java.util.concurrent.ExecutionException: {found}", err=True)
    return _FAILED


def _groups(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    """Print the failure; the exit code is 0, as that of Kafka's tool."""
    # Kafka's text is that of the outermost exception, which names the class of an API error.
    text = str(found) if isinstance(cause, ApiError) and cause.message else found.text
    click.echo(f"\nError: Executing consumer group command failed due to {text}")
    click.echo(str(found), err=True)
    return 0


def _reassign(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    if found.java_class == TERSE:
        click.echo(found.text)
        return _FAILED
    text = str(found) if isinstance(cause, ApiError) else found.text
    click.echo(f"Error: {text}")
    click.echo(f"{found}\n")
    return _FAILED


def _consume(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    """Print the line of Kafka's log; the exit code is 0, as that of Kafka's tool."""
    text = f"Error processing message, terminating consumer process: \n{found}"
    log_line("ERROR", text, "org.apache.kafka.tools.consumer.ConsoleConsumer")
    return 0


def _acls(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    # An API error reaches Kafka's tool inside an ExecutionException, whose text names its class.
    is_refusal = isinstance(cause, ApiError)
    click.echo(f"Error while executing ACL command: {found if is_refusal else found.text}")
    click.echo(f"{'java.util.concurrent.ExecutionException: ' if is_refusal else ''}{found}\n")
    return _FAILED


def _all_groups(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    click.echo(f"Error while executing groups command : {found.text}")
    log_line("ERROR", f"{found}\n", "org.apache.kafka.tools.GroupsCommand")
    return _FAILED


def _client_metrics(found: Failure, cause: Exception, words: Sequence[str]) -> int:
    click.echo(f"Error while executing client metrics command : {found.text}")
    log_line("ERROR", f"{found}\n", "org.apache.kafka.tools.ClientMetricsCommand")
    return _FAILED


_PLAIN: Final = ErrorStyle(_plain)
_TEXTS: Final = {
    "acls": ErrorStyle(_plain, _as_usage, execution=_acls),
    "groups": ErrorStyle(_uncaught, _as_usage, _all_groups),
    "client-metrics": ErrorStyle(_uncaught, _as_usage, _client_metrics),
    "cluster": ErrorStyle(_refusal_with_class),
    "configs": ErrorStyle(_plain, execution=_configs),
    "console-consumer": ErrorStyle(_with_class, _as_usage, _consume),
    "delegation-tokens": ErrorStyle(_with_class),
    "delete-records": ErrorStyle(_uncaught),
    "dump-log": ErrorStyle(_with_class),
    "get-offsets": ErrorStyle(_get_offsets),
    "consumer-groups": ErrorStyle(_plain, execution=_groups),
    "leader-election": ErrorStyle(_uncaught),
    "console-producer": ErrorStyle(_with_class, _as_usage),
    "metadata-quorum": ErrorStyle(_refusal_with_class),
    "reassign-partitions": ErrorStyle(_plain, execution=_reassign),
    "topics": ErrorStyle(_uncaught, execution=_topics),
}
_ARGPARSE: Final = {"producer-perf-test": "producer-performance"}
"""The commands without sub-commands that use argparse4j, with the names that they print."""
