"""The project's own Python files, parsed; generated message classes are left out."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "src" / "spindle"
GENERATED = PACKAGE / "protocol" / "messages"
PACKAGE_FOLDERS = ("src", "verification")
CODE_FOLDERS = (*PACKAGE_FOLDERS, "tests", "benchmarks", "tools", "examples")

DOCUMENT_FOLDERS = (
    ".",
    "docs",
    "docs/guide",
    "docs/reference",
    "docs/architecture",
    "examples",
    "deploy",
    "benchmarks",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources(*folders: str) -> dict[Path, str]:
    """Return the text of each Python file below the folders, by its path in the project."""
    sources = {}
    for folder in folders or CODE_FOLDERS:
        for path in sorted((PROJECT / folder).rglob("*.py")):
            if not path.is_relative_to(GENERATED):
                sources[path.relative_to(PROJECT)] = path.read_text()
    return sources


def documents() -> list[Path]:
    """Return the documents by their paths in the project."""
    paths = (path for folder in DOCUMENT_FOLDERS for path in (PROJECT / folder).glob("*.md"))
    return sorted(path.relative_to(PROJECT) for path in paths)


@cache
def _trees() -> dict[Path, tuple[ast.AST, ...]]:
    """Return the nodes of each file, its module first."""
    # The nodes stay. Without this the collector looks through all of them again and again.
    gc.collect()
    gc.disable()
    try:
        trees = {path: tuple(ast.walk(ast.parse(text))) for path, text in sources().items()}
        gc.freeze()
    finally:
        gc.enable()
    return trees


def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of the syntax tree of a file, by its path in the project."""
    return _trees()[path]


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, by its path in the project."""
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module


def functions(path: Path) -> Iterator[Function]:
    """Yield every function of a file, nested ones, too."""
    for node in nodes(path):
        if isinstance(node, Function):
            yield node


def public_classes(path: Path) -> Iterator[ast.ClassDef]:
    """Yield the public classes at the top level of a file."""
    for node in parsed(path).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


def module_name(path: Path) -> str:
    """Return the dotted name of a file in one of `PACKAGE_FOLDERS`."""
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
