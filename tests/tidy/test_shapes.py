"""Functions and files stay short. The exceptions are named with their length and never grow."""

import ast
from functools import cache

from source_tree import PACKAGE_FOLDERS, Function, functions, nodes, sources

MAX_FUNCTION_LINES = 60
LONG_FUNCTIONS = {
    "src/spindle/columnar/kernel.py::decode_batches": 169,
    "src/spindle/columnar/scan.py::scan_batches": 82,
    "tests/fuzz/test_limits_of_a_node.py::large_requests": 82,
    "tests/log/test_log_cleaning.py::test_every_batch_is_as_kafka_left_it": 73,
    "tests/metadata/metadata_history.py::history": 65,
    "tests/runtime/test_metrics.py::test_a_node_counts_what_its_clients_do": 76,
}
"""Lines of functions that are long for a reason: loops that numba compiles, and tables."""
MAX_FILE_LINES = 800
"""A file is a subject: it is split where its subject is."""


def length(function: Function) -> int:
    """Return the lines of a function, its docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


@cache
def function_lengths() -> dict[str, int]:
    return {
        f"{path}::{function.name}": length(function)
        for path in sources()
        for function in functions(path)
    }


def file_lengths() -> dict[str, int]:
    return {str(path): text.count("\n") for path, text in sources(*PACKAGE_FOLDERS).items()}


def test_no_function_is_longer_than_its_limit() -> None:
    too_long = {
        name: lines
        for name, lines in function_lengths().items()
        if lines > LONG_FUNCTIONS.get(name, MAX_FUNCTION_LINES)
    }
    assert not too_long


def test_no_file_is_longer_than_its_limit() -> None:
    too_long = {name: lines for name, lines in file_lengths().items() if lines > MAX_FILE_LINES}
    assert not too_long


def test_the_exceptions_are_still_needed() -> None:
    lengths = function_lengths()
    needless = [name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= MAX_FUNCTION_LINES]
    assert not needless


MAX_PROTOCOLS = 66
"""A Protocol has two implementers, or a fake in the tests; this number may only shrink."""


def test_there_are_no_more_protocols_than_needed() -> None:
    count = sum(
        isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in node.bases)
        for path in sources("src")
        for node in nodes(path)
    )
    assert count <= MAX_PROTOCOLS
