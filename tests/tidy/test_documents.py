"""The documents name what is in the tree, and nothing else."""

import re
from functools import cache
from pathlib import Path

import pytest
from source_tree import (
    CODE_FOLDERS,
    PACKAGE,
    PACKAGE_FOLDERS,
    PROJECT,
    documents,
    functions,
    module_name,
    public_classes,
    sources,
)

from documents.wrap import NOT_WRAPPED, wrapped
from spindle.testing.histories import FaultKind

ARCHITECTURE = PROJECT / "ARCHITECTURE.md"
DOCUMENTS = documents()


def packages_in(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}


def code_spans(document: Path) -> list[str]:
    """Return what stands in backticks outside of code blocks."""
    text = re.sub(r"```.*?```", "", (PROJECT / document).read_text(), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@cache
def modules() -> dict[str, Path]:
    """Return the files of the package by dotted name, and by name without `spindle.`."""
    named = {module_name(path): path for path in sources(*PACKAGE_FOLDERS)}
    return named | {name.removeprefix("spindle."): path for name, path in named.items()}


@cache
def class_names() -> set[str]:
    return {class_.name for path in sources(*PACKAGE_FOLDERS) for class_ in public_classes(path)}


def is_in_tree(dotted: str) -> bool:
    """Return True if a dotted name is a module, or something that is defined in one."""
    known = modules()
    stub = PROJECT / "src" / f"{dotted.replace('.', '/')}.pyi"  # of a module that is not Python
    if dotted in known or stub.exists():
        return True
    for name, path in known.items():
        if name == dotted.rpartition(".")[0] or name.endswith(f".{dotted.rpartition('.')[0]}"):
            defined = {f.name for f in functions(path)} | {c.name for c in public_classes(path)}
            defined |= set(
                re.findall(r"^(\w+)(?::[^=]+)? = ", sources(*PACKAGE_FOLDERS)[path], re.MULTILINE)
            )
            if dotted.rpartition(".")[2] in defined:
                return True
    return any(name.endswith(f".{dotted}") for name in known)


def test_the_module_map_is_that_of_the_tree() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", ARCHITECTURE.read_text(), re.MULTILINE))
    assert set(rows) == packages_in(PACKAGE)
    parts = packages_in(PACKAGE / "runtime")
    assert parts <= set(re.findall(r"`(\w+)`", rows["runtime"]))


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/architecture/packages.md"])
def test_the_folders_in_the_row_of_a_package_exist(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", (PROJECT / name).read_text(), re.MULTILINE)
    assert rows
    folders = [
        PACKAGE / package / folder
        for package, text in rows
        for folder in re.findall(r"`(\w+)/`", text)
    ]
    assert [str(folder) for folder in folders if not folder.is_dir()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_paths_in_a_document_exist(document: Path) -> None:
    paths = [
        span.rstrip("/")
        for span in code_spans(document)
        if re.fullmatch(rf"({'|'.join(CODE_FOLDERS)})/[\w./-]*", span)
    ]
    missing = [path for path in paths if not (PROJECT / path).exists()]
    assert not missing


OF_THE_CODE = [
    path
    for path in DOCUMENTS
    if path.name in ("ARCHITECTURE.md", "CONTRIBUTING.md") or path.parent.name == "architecture"
]
"""The documents that name modules, functions and classes."""


def dotted_names(text: str) -> set[str]:
    """Return the names of modules, functions and classes in backticks."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    spans = re.findall(r"`(spindle(?:\.\w+)+)[^`\n]*`", text)
    # Keys of the configuration begin with the name of the package, too.
    return {span for span in spans if not re.search(r"\.(ms|bytes|enable|listener)$", span)}


@pytest.mark.parametrize("document", OF_THE_CODE, ids=str)
def test_dotted_names_in_a_document_exist(document: Path) -> None:
    names = dotted_names((PROJECT / document).read_text())
    missing = sorted(name for name in names if not is_in_tree(name))
    assert not missing


MAX_ARCHITECTURE_BYTES = 12 * 1024
MAX_FILES = 2
"""A question about the code is answered by so many files."""
QUESTIONS = 44


def test_the_architecture_is_one_short_page() -> None:
    assert ARCHITECTURE.stat().st_size <= MAX_ARCHITECTURE_BYTES


def test_each_question_is_decided_in_at_most_two_files_that_exist() -> None:
    section = ARCHITECTURE.read_text().partition("## Where is it decided?")[2].partition("## ")[0]
    rows = re.findall(r"^\| (.*\?) \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) == QUESTIONS
    for question, places in rows:
        names = re.findall(r"`([^`]+)`", places)
        assert 1 <= len(names) <= MAX_FILES, question
        assert [name for name in names if not is_in_tree(name)] == [], question


@pytest.mark.parametrize("document", OF_THE_CODE, ids=str)
def test_classes_in_a_document_of_the_code_exist(document: Path) -> None:
    spans = code_spans(document)
    names = {span for span in spans if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", span)}
    assert not sorted(names - class_names() - FOREIGN_NAMES)


FOREIGN_NAMES = {"OSError", "DumpLogSegments", "TopicBuilder"}
"""Classes of Python and tools of Kafka that the documents speak of."""


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_inside_of_the_project_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", (PROJECT / document).read_text(), flags=re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (PROJECT / document).parent / path if path else PROJECT / document
        is_there = target.exists()
        if is_there and anchor and target.suffix == ".md":
            is_there = anchor in anchors(target)
        if not is_there:
            broken.append(link)
    assert not broken


def test_a_name_that_is_not_there_is_found() -> None:
    assert is_in_tree("spindle.raft.quorum.Quorum")
    assert not is_in_tree("spindle.raft.quorum.Senate")
    assert not is_in_tree("spindle.raft.senate")


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_paragraphs_are_wrapped(document: Path) -> None:
    text = (PROJECT / document).read_text()
    if str(document) not in NOT_WRAPPED:
        assert wrapped(text) == text, "make docs-wrap wraps it"


def test_a_long_paragraph_is_wrapped_and_no_code_or_link_is_divided() -> None:
    words = "word " * 18
    assert (
        wrapped(f"* {words}`a b c d e f g`\n  end") == f"* {words.strip()}\n  `a b c d e f g` end"
    )
    assert wrapped(f"{words}[a b c](d e f g) 1. x") == f"{words.strip()}\n[a b c](d e f g) 1. x"
    table = f"| {words * 2} |"
    assert wrapped(f"{table}\n```\n{words * 2}\n```") == f"{table}\n```\n{words * 2}\n```"


NAVIGATION = PROJECT / "tools" / "documents" / "mkdocs.yml"
MADE_WITH_THE_SITE = ("docs/plots.md", "docs/reference/api/")


def test_the_site_has_every_document_once() -> None:
    pages = re.findall(r"^ +- (?:[\w &]+: )?(\S+\.md)$", NAVIGATION.read_text(), re.MULTILINE)
    written = [page for page in pages if not page.startswith(MADE_WITH_THE_SITE)]
    assert sorted(written) == sorted(map(str, DOCUMENTS))


STATES = {"works", "differs", "missing", "not tested"}


def test_each_limitation_has_a_state_and_a_page() -> None:
    text = (PROJECT / "LIMITATIONS.md").read_text()
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    rows = [row for row in rows if row[0] not in ("feature", "---")]
    assert len(rows) > 40
    assert {state for _, state, _ in rows} == STATES
    assert [feature for feature, _, page in rows if "](" not in page] == ["ZooKeeper"]
    assert len(re.findall(r"^\d+\. ", text, re.MULTILINE)) == 10


def test_the_guide_of_histories_has_every_kind_of_fault() -> None:
    table = (PROJECT / "docs/guide/testing.md").read_text().partition("| kind | meaning |")[2]
    rows = re.findall(r"^\| (.*) \| .* \|$", table.partition("\n\n")[0], re.MULTILINE)
    kinds = {kind for row in rows[1:] for kind in row.split(", ")}
    assert kinds == {kind.value for kind in FaultKind}
