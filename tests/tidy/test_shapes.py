"""Functions and files stay short. The exceptions are named with their length and never grow."""

from source_tree import functions, sources

MAX_FUNCTION_LINES = 60
LONG_FUNCTIONS: dict[str, int] = {}
MAX_FILE_LINES = 450
LONG_FILES: dict[str, int] = {}


def test_no_function_is_longer_than_sixty_lines() -> None:
    lengths = {
        f"{path}::{function.name}": function.end_lineno - function.lineno + 1
        for path in sources()
        for function in functions(path)
        if function.end_lineno is not None
    }
    too_long = {
        name: lines
        for name, lines in lengths.items()
        if lines > LONG_FUNCTIONS.get(name, MAX_FUNCTION_LINES)
    }
    assert not too_long


def test_no_file_is_longer_than_its_limit() -> None:
    lengths = {str(path): text.count("\n") for path, text in sources("src").items()}
    too_long = {
        name: lines
        for name, lines in lengths.items()
        if lines > LONG_FILES.get(name, MAX_FILE_LINES)
    }
    assert not too_long


def test_the_exceptions_are_still_needed() -> None:
    lengths = {
        f"{path}::{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in sources()
        for function in functions(path)
    }
    files = {str(path): text.count("\n") for path, text in sources("src").items()}
    needless = [name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= MAX_FUNCTION_LINES]
    needless += [name for name in LONG_FILES if files.get(name, 0) <= MAX_FILE_LINES]
    assert not needless
