"""Rules for tests themselves."""

import ast
import re
from pathlib import Path

from source_tree import PROJECT, nodes

TESTS = Path(__file__).parents[1]
OWN_WAIT = re.compile(r"assert time\.monotonic\(\) <")
NAMED_TUPLE_API = {"_make", "_replace", "_asdict", "_fields"}


def private_accesses(path: Path) -> list[str]:
    """Return the private attributes that a module reads from objects other than self and cls."""
    return [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for node in nodes(path.relative_to(PROJECT))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in NAMED_TUPLE_API | {"_exit"}
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_the_runtime_tests_read_no_private_attribute() -> None:
    accesses = [
        access
        for path in sorted((TESTS / "runtime").glob("*.py"))
        for access in private_accesses(path)
    ]
    assert not accesses, "\n".join(accesses)


def test_waits_go_through_one_helper() -> None:
    """`waiting.wait_until`, `wait_for` and `until` name the condition that did not come."""
    own = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != Path(__file__).name and OWN_WAIT.search(path.read_text(encoding="utf-8"))
    ]
    assert own == []
