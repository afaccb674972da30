"""Long modules begin first, so that no worker waits for one of them at the end."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Return 0 for modules that start Spark, 1 for those of the simulation, 2 for all others."""
    if item.get_closest_marker("spark") is not None:
        return 0
    return 1 if item.path.parent.name == "simulation" else 2
