"""`spindle export retry`: look at dead letters, mend them, and move them into the table."""

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from spindle.cli.examples import examples
from spindle.cli.export.command import CONFLICT, export, job_of
from spindle.cli.export.errors import concise_errors
from spindle.cli.failure import CommandFailed
from spindle.cli.table import table_lines
from spindle.common.text import count_noun, printable

if TYPE_CHECKING:
    from spindle.pipeline.export.retry import DeadLetter, LetterId, Mended, RetryResult

_SHARED: Final = (
    "topic", "table", "servers", "file", "log_dirs", "table_format", "catalog", "key", "value",
    "columns", "headers", "partition_by", "compression", "further",
)  # fmt: skip
_SHOWN_CHARACTERS: Final = 40
_REMAIN: Final = 3
"""Exit code: some letters are still bad."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def retry(**given: Any) -> int:
    """Decode the dead letters of TABLE again, and move those that are good now into it.

    The options about columns and formats are those of the export, or those of a mended schema.
    --list shows the letters and changes nothing. Its JSON has one line for each letter: mend keys
    and values in it, and give the file to --mended. A letter is in one of the two tables wherever
    the command is killed. The exit code is 0 if all letters are rows now, 3 if some are still bad
    or another retry was first, and 1 on any other failure.
    """
    from spindle.pipeline.export.model import ExportConflict
    from spindle.pipeline.export.retry import listed_letters, retry_export

    with concise_errors():
        mended = _read_mended(given["mended"])
        job = job_of(_with_defaults(given))
        if given["only_list"]:
            for line in _listed(listed_letters(job), as_json=given["as_json"]):
                click.echo(line)
            return 0
        try:
            result = retry_export(job, mended)
        except ExportConflict as error:
            click.echo(f"spindle export retry: {error}", err=True)
            return CONFLICT
    if given["as_json"]:
        click.echo(json.dumps(_document(result)))
    else:
        click.echo("\n".join(_lines(result)))
    return _REMAIN if result.remaining else 0


def _with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    context = click.get_current_context()
    words = ["--", given["topic"], given["table"]]
    defaults = export.make_context("topic", words, parent=context).params
    return {**defaults, **given, "dead_letters": True}


def _listed(letters: "Iterator[DeadLetter]", *, as_json: bool) -> Iterator[str]:
    if as_json:
        for letter in letters:
            yield json.dumps(_letter_document(letter), ensure_ascii=False)
        return
    rows = [
        (
            f"{letter.topic}-{letter.partition}",
            str(letter.offset),
            _time_text(letter.timestamp_us),
            _short(letter.key),
            _short(letter.value),
            printable(letter.reason),
        )
        for letter in letters
    ]
    if not rows:
        yield "there are no dead letters"
        return
    yield from table_lines(("PARTITION", "OFFSET", "TIME", "KEY", "VALUE", "REASON"), rows)


def _time_text(time_us: int | None) -> str:
    if time_us is None:
        return "-"
    try:
        return f"{_EPOCH + timedelta(microseconds=time_us):%Y-%m-%dT%H:%M:%S}"
    except OverflowError:
        return f"{time_us // 1000} ms"


def _short(cell: bytes | None) -> str:
    if cell is None:
        return "-"
    text = printable(cell.decode(errors="replace"))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _letter_document(letter: "DeadLetter") -> dict[str, Any]:
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": None if letter.timestamp_us is None else letter.timestamp_us // 1000,
        "key": _cell(letter.key),
        "value": _cell(letter.value),
        "reason": letter.reason,
    }


def _cell(value: bytes | None) -> Any:
    """Return text for bytes that are text, and an object with base64 for others."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _read_mended(path: str | None) -> "dict[LetterId, Mended]":
    """Return the keys and values in a file with a line for each letter.

    Raises:
        CommandFailed: names the line that cannot be read.
    """
    from spindle.pipeline.export.retry import Mended

    mended: dict[LetterId, Mended] = {}
    if path is None:
        return mended
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                letter = json.loads(line)
                place = str(letter["topic"]), int(letter["partition"]), int(letter["offset"])
                mended[place] = Mended(_bytes(letter["key"]), _bytes(letter["value"]))
            except (ValueError, KeyError, TypeError) as error:
                raise CommandFailed(
                    f"{path}, line {number}: want a letter as --list --json prints it, with topic, "
                    f"partition, offset, key and value ({type(error).__name__}: {error})"
                ) from None
    return mended


def _bytes(cell: Any) -> bytes | None:
    if cell is None:
        return None
    if isinstance(cell, str):
        return cell.encode()
    return base64.b64decode(cell["base64"], validate=True)


def _lines(result: "RetryResult") -> list[str]:
    lines = [f"retried: {count_noun(result.retried, 'dead letter')} became rows"]
    if result.remaining:
        lines.append(f"still bad: {count_noun(len(result.remaining), 'dead letter')}")
        reasons = Counter(letter.reason for letter in result.remaining)
        lines += [f"  {count:,} x {printable(reason)}" for reason, count in reasons.most_common(10)]
    if result.waiting:
        letters = count_noun(result.waiting, "dead letter")
        lines.append(f"waiting: {letters} of a commit that the next export finishes")
    return lines


def _document(result: "RetryResult") -> dict[str, Any]:
    return {
        "version": result.version,
        "retried": result.retried,
        "waiting": result.waiting,
        "remaining": [_letter_document(letter) for letter in result.remaining],
    }


def _params() -> Sequence[click.Parameter]:
    by_name = {param.name: param for param in export.params}
    return [
        *(by_name[name] for name in _SHARED),
        click.Option(["--list", "only_list"], is_flag=True, help="Show the letters only."),
        click.Option(
            ["--mended"],
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Lines of --list --json with mended keys and values.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, for programs."),
    ]


retry_command = click.Command(
    "retry",
    callback=retry,
    params=list(_params()),
    help=retry.__doc__,
    epilog=examples(
        "spindle export retry events ./table -b 127.0.0.1:9092 --list -o valueFormat=json "
        "-o valueSchema=infer",
        "spindle export retry events ./table -b 127.0.0.1:9092 -o valueFormat=json "
        "-o 'valueSchema=id BIGINT'",
    ),
)
