"""Values of Python as they stand in a property file."""

from collections.abc import Mapping


def property_texts(properties: Mapping[str, object]) -> dict[str, str]:
    """Return the texts of the values: `true` for True, 5 for 5."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in properties.items()
    }
