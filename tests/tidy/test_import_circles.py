"""No module imports itself by way of others, also not for types alone or inside a function."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from source_tree import sources


def modules() -> dict[str, str]:
    """Return the source text of each module of the package by its dotted name."""
    return {
        str(path)
        .removeprefix("src/")
        .removesuffix(".py")
        .removesuffix("/__init__")
        .replace("/", "."): text
        for path, text in sources("src").items()
    }


def imported(text: str, known: dict[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph = {name: set(imported(text, known)) - {name} for name, text in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle of imports: {' <- '.join(error.args[1])}") from None
