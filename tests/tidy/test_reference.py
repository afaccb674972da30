"""The pages of docs/reference are those that the tables in the code make.

`make docs-reference` writes them again. The table of metrics is compared with a running node in
tests/runtime/test_metrics.py.
"""

import pytest

from documents.reference import FOLDER, PAGES, commands, shortened

COMMANDS_WITHOUT_EXAMPLE: frozenset[str] = frozenset()
"""Commands whose help has no example yet. This set only shrinks."""


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "make docs-reference writes it again"


def test_keys_with_a_common_prefix_are_one_entry_if_all_of_them_are_listed() -> None:
    assert shortened(["a.b", "a.c", "a.d", "e.f"], ["a.b", "a.c", "a.d", "e.f", "e.g"]) == [
        "a.*",
        "e.f",
    ]
    assert shortened(["a.b", "a.c", "a.d"], ["a.b", "a.c", "a.d", "a.e"]) == ["a.b", "a.c", "a.d"]


def test_the_help_of_a_command_has_an_example() -> None:
    without = {words for words, command, _ in commands() if not command.epilog}
    assert without == COMMANDS_WITHOUT_EXAMPLE
