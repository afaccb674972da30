"""The documents name what is in the tree, and nothing else."""

import re
from functools import cache
from pathlib import Path

import pytest
from source_tree import PACKAGE, PROJECT, documents, functions, module_name, public_classes, sources

ARCHITECTURE = PROJECT / "ARCHITECTURE.md"
DOCUMENTS = documents()
FOLDERS = ("src", "tests", "benchmarks", "tools", "examples")


def packages_in(folder: Path) -> set[str]:
    return {found.parent.name for found in folder.glob("*/__init__.py")}


def code_spans(document: Path) -> list[str]:
    """Return what stands in backticks outside of code blocks."""
    text = re.sub(r"```.*?```", "", (PROJECT / document).read_text(), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@cache
def modules() -> dict[str, Path]:
    """Return the files of the package by dotted name, and by name without `spindle.`."""
    named = {module_name(path): path for path in sources("src")}
    return named | {name.removeprefix("spindle."): path for name, path in named.items()}


@cache
def class_names() -> set[str]:
    return {found.name for path in sources("src") for found in public_classes(path)}


def is_in_tree(dotted: str) -> bool:
    """Tell whether a dotted name is a module, or something that is defined in one."""
    known = modules()
    if dotted in known:
        return True
    for name, path in known.items():
        if name == dotted.rpartition(".")[0] or name.endswith(f".{dotted.rpartition('.')[0]}"):
            defined = {f.name for f in functions(path)} | {c.name for c in public_classes(path)}
            defined |= set(re.findall(r"^(\w+)(?::[^=]+)? = ", sources("src")[path], re.MULTILINE))
            if dotted.rpartition(".")[2] in defined:
                return True
    return any(name.endswith(f".{dotted}") for name in known)


def test_the_module_map_is_that_of_the_tree() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", ARCHITECTURE.read_text(), re.MULTILINE))
    assert set(rows) == packages_in(PACKAGE)
    parts = packages_in(PACKAGE / "runtime")
    assert parts <= set(re.findall(r"`(\w+)`", rows["runtime"]))


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_paths_in_a_document_exist(document: Path) -> None:
    paths = [
        span.rstrip("/")
        for span in code_spans(document)
        if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]*", span)
    ]
    missing = [path for path in paths if not (PROJECT / path).exists()]
    assert not missing


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_dotted_names_in_a_document_exist(document: str) -> None:
    packages = "|".join(packages_in(PACKAGE) | packages_in(PACKAGE / "runtime"))
    names = {
        match.group(1)
        for span in code_spans(Path(document))
        if (match := re.match(rf"((?:{packages})(?:\.\w+)+)", span))
        and "(" not in span
        and not re.search(r"\.(ms|bytes|enable)$", match.group(1))  # a configuration key
    }
    assert names
    missing = sorted(name for name in names if not is_in_tree(name))
    assert not missing


def test_classes_in_the_architecture_exist() -> None:
    names = {
        span for span in code_spans(ARCHITECTURE) if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", span)
    }
    assert names
    missing = sorted(names - class_names() - FOREIGN_NAMES)
    assert not missing


FOREIGN_NAMES = {"OSError", "DumpLogSegments"}
"""Classes of Python and tools of Kafka that the architecture speaks of."""


def test_a_name_that_is_not_there_is_found() -> None:
    assert is_in_tree("raft.quorum.Quorum")
    assert not is_in_tree("raft.quorum.Senate")
    assert not is_in_tree("raft.senate")
