"""mypy checks all tests."""

import re
import tomllib
from pathlib import Path

from source_tree import sources

TESTS = Path(__file__).parents[1]
REASON = re.compile(r"# type: ignore\[[a-z-]+\]  # \w")


def test_no_module_of_tests_is_left_unchecked() -> None:
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    overrides = settings["tool"]["mypy"]["overrides"]
    assert [override for override in overrides if "ignore_errors" in override] == []


def test_an_error_of_a_type_is_ignored_with_its_code_and_a_reason() -> None:
    unexplained = [
        f"{path}:{number}"
        for path, text in sources("tests").items()
        for number, line in enumerate(text.splitlines(), 1)
        if path.name != Path(__file__).name and "# type: ignore" in line
        if not REASON.search(line)
    ]
    assert unexplained == []


def test_mypy_finds_every_folder_of_tests() -> None:
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    searched = set(settings["tool"]["mypy"]["mypy_path"])
    folders = {path.parent for path in TESTS.rglob("*.py") if path.name != "conftest.py"}
    packages = {path for path in folders if (path / "__init__.py").exists()}
    assert {str(path.relative_to(TESTS.parent)) for path in folders - packages} <= searched
