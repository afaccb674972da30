"""A public class name has one meaning, and every module and function has a use."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from source_tree import (
    PACKAGE_FOLDERS,
    Function,
    functions,
    module_name,
    nodes,
    public_classes,
    sources,
)

ENTRY_POINTS = re.compile(r"^spindle(\.cli\.entry)?$|\.__main__$")
UNUSED_YET = {
    "build_end_transaction": "tests write transactional logs; the broker will with transactions",
}
"""Functions that only tests call, each with the reason why it stays."""


def is_for_tests(path: Path) -> bool:
    """Return whether a file serves tests: those of applications, or Spindle's own."""
    return path.is_relative_to("src/spindle/testing") or path.is_relative_to("verification")


def extends_its_namesake(node: ast.ClassDef) -> bool:
    """Return whether a class is another one of its name with more in it, as in testing."""
    return any(ast.unparse(base).rpartition(".")[2] == node.name for base in node.bases)


def test_a_public_class_name_has_one_meaning() -> None:
    homes = defaultdict(list)
    for path in sources(*PACKAGE_FOLDERS):
        for node in public_classes(path):
            if not extends_its_namesake(node):
                homes[node.name].append(str(path))
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not shared


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names that a file imports; `from a import b` gives `a` and `a.b`."""
    imported_modules: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            imported_modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported_modules.add(node.module)
            imported_modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return imported_modules


def test_every_module_has_a_user() -> None:
    """Imports count, and names in strings: commands are loaded lazily, by `module:attribute`."""
    paths = {
        path: text for path, text in sources(*PACKAGE_FOLDERS).items() if not is_for_tests(path)
    }
    used = set().union(*(imported_modules(path) for path in sources(*PACKAGE_FOLDERS)))
    text = "\n".join(paths.values())
    unused = [
        name
        for name in map(module_name, paths)
        if name not in used
        and not ENTRY_POINTS.search(name)
        and not any(other.startswith(f"{name}.") for other in used)
        and not re.search(rf"\.{name.rpartition('.')[2]}:\w+\"|[ \"]{re.escape(name)}[ \"]", text)
    ]
    assert not unused


@cache
def bases_by_class() -> dict[str, set[str]]:
    """Return the names of the bases of every class of the package."""
    return {
        node.name: {ast.unparse(base).partition("[")[0] for base in node.bases}
        for path in sources(*PACKAGE_FOLDERS)
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    }


def is_called_by_a_library(class_name: str) -> bool:
    """Return whether a class extends one from outside the project, however far up."""
    known = bases_by_class()
    if class_name not in known:
        return class_name not in {"Protocol", "NamedTuple", "Enum", "IntEnum", "ABC"}
    return any(map(is_called_by_a_library, known[class_name]))


def foreign_methods(path: Path) -> set[str]:
    """Return the methods of a file's classes that a library may call."""
    return {
        method.name
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and is_called_by_a_library(node.name)
        for method in node.body
        if isinstance(method, Function)
    }


def test_no_function_is_called_by_tests_alone() -> None:
    """A public function of the package is named in the package besides its definition."""
    text = "\n".join(sources(*PACKAGE_FOLDERS, "benchmarks", "tools").values())
    counts = Counter(re.findall(r"\w+", text))
    unused = [
        f"{path}: {function.name}"
        for path in sources(*PACKAGE_FOLDERS)
        if not is_for_tests(path)
        for function in functions(path)
        if counts[function.name] < 2
        and not function.name.startswith("_")
        and not function.decorator_list
        and function.name not in foreign_methods(path)
        and function.name not in UNUSED_YET
    ]
    assert not unused


def test_a_test_module_has_a_name_of_its_own() -> None:
    """Test folders are no packages: pytest cannot load two modules of one name."""
    counts = Counter(path.name for path in sources("tests") if path.name.startswith("test_"))
    assert not [name for name, count in counts.items() if count > 1]
