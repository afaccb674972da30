"""Helpers of tests are imported in one way: by the name of their module."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from source_tree import nodes, sources

TESTS = Path(__file__).parents[1]
TOP = TESTS.parent


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports; a relative one begins with a dot."""
    for node in nodes(path.relative_to(TOP)):
        if isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_helpers_are_imported_by_the_name_of_their_module() -> None:
    settings = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    searched = {
        TOP / folder_name for folder_name in settings["tool"]["pytest"]["ini_options"]["pythonpath"]
    }
    files = sorted(TESTS.rglob("*.py"))
    places = {path.stem: path.parent for path in files if path.name != "conftest.py"}
    complaints = []
    for path in files:
        for module in imported(path):
            folder = places.get(module.partition(".")[0])
            if module.startswith((".", "tests.")):
                complaints.append(f"{path.relative_to(TOP)}: {module}: name the module alone")
            elif folder is not None and folder not in {path.parent, *searched}:
                missing = folder.relative_to(TOP)
                complaints.append(f"{path.relative_to(TOP)}: {module}: {missing} to pythonpath")
        if "sys.path.insert" in sources()[path.relative_to(TOP)] and path.parent.name != "tidy":
            complaints.append(
                f"{path.relative_to(TOP)}: pythonpath in pyproject.toml finds helpers"
            )
    assert not complaints, "\n".join(complaints)


def test_no_two_modules_of_tests_have_one_name() -> None:
    """The second one would import the first."""
    places = defaultdict(list)
    for path in TESTS.rglob("*.py"):
        if (
            path.name not in ("conftest.py", "__init__.py")
            and not (path.parent / "__init__.py").exists()
        ):
            places[path.name].append(path.parent.name)
    assert {name: at for name, at in places.items() if len(at) > 1} == {}
