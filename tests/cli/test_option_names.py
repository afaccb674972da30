"""Operations name Python arguments; the commands show their options instead."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spindle.operations
from spindle.cli.option_names import with_option_names
from spindle.cli.parameter_types import DurationMs, option_text
from spindle.operations.errors import OperationFailed
from spindle.operations.heal_memory import open_memory


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def test_an_argument_becomes_an_option() -> None:
    text = "choose another file with `state`, or see `cancel_drain` and `other`"
    expected = "choose another file with --state, or see the same command with --cancel and `other`"
    assert with_option_names(text) == expected


def test_operations_name_no_option_of_a_command() -> None:
    """Kafka's tools and other commands are named in full, with `spindle` before them."""
    (folder,) = spindle.operations.__path__
    own = [
        (str(path), text)
        for path, text in _texts(Path(folder))
        if " --" in f" {text}" and "spindle" not in text and "kafka" not in text
    ]
    assert not own


def test_the_state_of_another_cluster_names_the_argument(tmp_path: Path) -> None:
    path = tmp_path / "heal.json"
    path.write_text('{"clusterId": "a", "offlineMs": {}, "lookedMs": 0, "moved": []}')
    with pytest.raises(OperationFailed, match=r"of cluster a, not of b; .* with `state`"):
        open_memory(path, "b")


@pytest.mark.parametrize("text", ["90s", "30m", "5m", "1d12h", "7d"])
def test_a_default_is_shown_as_it_is_written(text: str) -> None:
    shown = option_text(DurationMs().convert(text, None, None))
    assert DurationMs().convert(shown, None, None) == DurationMs().convert(text, None, None)
