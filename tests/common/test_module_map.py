"""ARCHITECTURE.md names every package, and no other."""

import re
from pathlib import Path

import spindle

ROOT = Path(spindle.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"


def packages_in(folder: Path) -> set[str]:
    return {found.parent.name for found in folder.glob("*/__init__.py")}


def test_the_module_map_is_that_of_the_tree() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", ARCHITECTURE.read_text(), re.MULTILINE))
    assert set(rows) == packages_in(ROOT)
    parts = packages_in(ROOT / "runtime")
    assert parts <= set(re.findall(r"`(\w+)`", rows["runtime"]))
