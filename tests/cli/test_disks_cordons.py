"""`spindle disks cordon` and `uncordon` against a node of `spindle up`."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner

from spindle.cli.main import run
from spindle.cli.parameter_types import DurationMs
from spindle.cli.tools.bootstrap import connect
from spindle.client.admin import cordons
from spindle.client.admin.configs import alter, describe
from spindle.client.blocking.client import WireClient
from spindle.config.cordon_notes import CordonNote, parse_notes
from spindle.config.resources import ConfigResourceType

CORDONS, NOTES = "cordoned.log.dirs", "spindle.cordon.notes"


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(("disks", *arguments))
    shown = capsys.readouterr()
    return code, shown.out.strip(), shown.err.strip()


def stored(bootstrap: str) -> dict[str, str | None]:
    """Return the dynamic values of the node that concern cordons."""
    with connect(bootstrap, {}) as client:
        configs = describe(client, ConfigResourceType.BROKER, "1")
    return {config.name: config.value for config in configs if config.name in (CORDONS, NOTES)}


def change(bootstrap: str, values: dict[str, str], deleted: Sequence[str] = ()) -> None:
    with connect(bootstrap, {}) as client:
        alter(client, ConfigResourceType.BROKER, "1", values, deleted)


def notes(bootstrap: str) -> list[CordonNote]:
    return list(parse_notes(stored(bootstrap).get(NOTES) or ""))


@pytest.fixture
def directories(bootstrap: str) -> list[str]:
    with connect(bootstrap, {}) as client:
        return [view.path for view in client.describe_log_dirs()[1]]


def test_a_cordon_with_a_note_and_its_end(
    up: dict[str, Any],
    bootstrap: str,
    directories: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second, third = directories
    shown = outcome(
        capsys, "cordon", "1", first, "--reason", "worn, 4 TB", "--owner", "ops", "--for", "2h"
    )
    assert shown == (0, f"Cordoned {first} of broker 1.", "")
    assert stored(bootstrap)[CORDONS] == first
    (note,) = notes(bootstrap)
    assert (note.path, note.reason, note.owner) == (first, "worn, 4 TB", "ops")
    assert note.since_ms is not None
    assert note.until_ms == note.since_ms + 7_200_000

    assert outcome(capsys, "cordon", "1", f"{second}/") == (
        0,
        f"Cordoned {second}/ of broker 1.",
        "",
    )
    assert stored(bootstrap)[CORDONS] == f"{first},{second}"
    assert notes(bootstrap) == [note]
    code, text, _ = outcome(capsys, "cordon", "1", first, "--owner", "you", "--json")
    assert (code, json.loads(text)["isNew"]) == (0, False)
    assert [(n.owner, n.reason, n.until_ms) for n in notes(bootstrap)] == [("you", None, None)]

    with connect(bootstrap, {}) as client:
        cordoned = [view.is_cordoned for view in client.describe_log_dirs()[1]]
    assert cordoned == [True, True, False]
    assert outcome(capsys, "uncordon", "1", first) == (0, f"Uncordoned {first} of broker 1.", "")
    assert stored(bootstrap) == {CORDONS: second}
    assert outcome(capsys, "cordon", "1", first)[0] == 0
    assert outcome(capsys, "uncordon", "1", second, first) == (
        0,
        f"Uncordoned {second} of broker 1.\nUncordoned {first} of broker 1.",
        "",
    )
    assert stored(bootstrap) == {CORDONS: ""}
    assert outcome(capsys, "uncordon", "1", third) == (
        1,
        "",
        f"no operator has cordoned {third} of broker 1",
    )


def test_a_cordon_of_every_directory_is_named_in_words(
    up: dict[str, Any], bootstrap: str, directories: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = directories[0]
    assert outcome(capsys, "cordon", "1", first)[0] == 0
    assert outcome(capsys, "uncordon", "1", "*") == (
        1,
        "",
        f"no operator has cordoned every log directory (*) of broker 1; cordoned: {first}",
    )
    everything = "every log directory (*) of broker 1."
    assert outcome(capsys, "cordon", "1", "*") == (0, f"Cordoned {everything}", "")
    assert outcome(capsys, "uncordon", "1", "*") == (0, f"Uncordoned {everything}", "")


def test_two_cordons_at_the_same_moment_both_stay(
    up: dict[str, Any], bootstrap: str, directories: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = directories
    described = describe
    others: list[Callable[[WireClient], object]] = [
        lambda other: cordons.cordon(other, 1, CordonNote(second)),
        lambda other: cordons.uncordon(other, 1, second),
    ]

    def meanwhile(*arguments: Any) -> Any:
        """Answer with what is cordoned now; then another operator changes it."""
        configs = described(*arguments)
        monkeypatch.setattr(cordons, "describe", described)
        with connect(bootstrap, {}) as other:
            others.pop(0)(other)
        return configs

    with connect(bootstrap, {}) as client:
        cordons.cordon(client, 1, CordonNote(third))
        monkeypatch.setattr(cordons, "describe", meanwhile)
        cordons.cordon(client, 1, CordonNote(first))
        assert set((stored(bootstrap)[CORDONS] or "").split(",")) == set(directories)
        monkeypatch.setattr(cordons, "describe", meanwhile)
        cordons.uncordon(client, 1, third)
        assert stored(bootstrap) == {CORDONS: first}
        cordons.uncordon(client, 1, first)


def test_all_directories_at_once(
    up: dict[str, Any],
    bootstrap: str,
    directories: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome(capsys, "cordon", "1", "*", "--reason", "leaves")[0] == 0
    assert stored(bootstrap)[CORDONS] == "*"
    assert [note.path for note in notes(bootstrap)] == ["*"]
    for command in ("cordon", "uncordon"):
        code, _, error = outcome(capsys, command, "1", directories[0])
        assert code == 1
        assert "has cordoned every directory by '*'" in error
    assert outcome(capsys, "uncordon", "1", "*")[0] == 0
    assert stored(bootstrap) == {CORDONS: ""}


def test_a_change_by_another_tool_leaves_no_note_for_a_later_cordon(
    up: dict[str, Any],
    bootstrap: str,
    directories: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = directories[0]
    assert outcome(capsys, "cordon", "1", first, "--owner", "ops", "--for", "1d")[0] == 0
    change(bootstrap, {}, [CORDONS])
    change(bootstrap, {CORDONS: first})
    assert stored(bootstrap) == {CORDONS: first}
    change(bootstrap, {}, [CORDONS])


def test_a_directory_that_cannot_be_cordoned_is_named(
    up: dict[str, Any],
    bootstrap: str,
    directories: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, error = outcome(capsys, "cordon", "1", "/nowhere")
    assert (code, error) == (
        1,
        f"broker 1 has no log directory /nowhere; it has {', '.join(directories)}",
    )
    code, _, error = outcome(capsys, "cordon", "7", directories[0])
    assert code == 1
    assert "broker 7 is unknown or down; known brokers: 1" in error
    assert stored(bootstrap) == {CORDONS: ""}


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000), ("1d12h", 129_600_000)],
)
def test_durations_of_cordons_are_parsed(text: str, duration_ms: int) -> None:
    assert DurationMs().convert(text, None, None) == duration_ms


@pytest.mark.parametrize("text", ["", "2", "h", "0s", "-1h", "1h 30m", "1m1h", "2 h", "1.5h"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    @click.command()
    @click.option("--for", "duration_ms", type=DurationMs())
    def command(duration_ms: int) -> None:
        click.echo(duration_ms)

    invocation = CliRunner().invoke(command, ["--for", text])
    assert invocation.exit_code == 2
    assert "is not a duration of at least 1s, such as 90s, 30m, 2h or 1d12h" in invocation.output
