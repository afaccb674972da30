"""Options that are numbers refuse what is not a number."""

import re
from pathlib import Path

import click
import pytest

import spindle.cli
from spindle.cli.main import run
from spindle.cli.parameter_types import FiniteRange


def test_a_range_refuses_nan_and_infinities() -> None:
    assert FiniteRange(min=0).convert("1e3", None, None) == 1000
    for text in ("nan", "-nan", "inf", "-inf", "infinity", "1e999", "x"):
        with pytest.raises(click.BadParameter):
            FiniteRange().convert(text, None, None)


def test_options_of_heal_refuse_nan(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--trigger-fill", "--target-fill", "--max-fill"):
        assert run(("heal", option, "nan", "--bootstrap-server", "localhost:1")) != 0
        assert "'nan' is not a finite number" in capsys.readouterr().err


def test_a_word_in_the_place_of_a_whole_number_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(("up", "--nodes", "three")) == 2
    assert "'--nodes': 'three' is not a valid whole number." in capsys.readouterr().err


def test_every_range_is_one_of_numbers() -> None:
    (folder,) = spindle.cli.__path__
    files = [path for path in Path(folder).rglob("*.py") if path.name != "parameter_types.py"]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    paths = [
        path
        for path, text in texts.items()
        if re.search(r"FloatRange|click\.FLOAT|click\.IntRange", text)
    ]
    assert not paths
