"""Values of options: flags, integers, words and JSON, as Spark reads them.

All functions take options with names in lower case, and name options as documents write them.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")
MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?\d+")
"""The integers of Java: a sign and decimal digits of any script, no blanks, no underscores."""
_FLAGS: Final = {"true": True, "false": False}


def lower_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with names in lower case; Spark ignores case there."""
    return {name.lower(): text for name, text in options.items()}


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the value of a flag.

    Raises:
        ValueError: it is neither `true` nor `false`, in upper or lower case.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in _FLAGS:
        raise ValueError(f"option {name}: {text!r}, want true or false")
    return _FLAGS[text.lower()]


def optional_number(
    options: Mapping[str, str], name: str, at_least: int, at_most: int
) -> int | None:
    """Return the integer of an option, None if it is not given.

    Raises:
        ValueError: it is not an integer between the bounds, both inclusive.
    """
    text = options.get(name.lower())
    return None if text is None else number_in(name, text, at_least, at_most)


def number(options: Mapping[str, str], name: str, default: int, at_least: int, at_most: int) -> int:
    """Return the integer of an option.

    Raises:
        ValueError: it is not an integer between the bounds, both inclusive.
    """
    value = optional_number(options, name, at_least, at_most)
    return default if value is None else value


def number_in(name: str, text: str, at_least: int, at_most: int) -> int:
    """Return the integer that the text of an option is.

    Raises:
        ValueError: it is not an integer between the bounds, both inclusive.
    """
    value = integer(text)
    if value is None:
        raise ValueError(f"option {name}: {text!r}, want an integer from {at_least} to {at_most}")
    if not at_least <= value <= at_most:
        raise ValueError(f"option {name}: {value}, want {at_least} to {at_most}")
    return value


def integer(text: str) -> int | None:
    """Parse an integer; None if invalid.

    A text of more than 30 characters counts as none: no option takes so large a number.
    """
    return int(text) if len(text) <= 30 and _INTEGER.fullmatch(text) else None


def choice(options: Mapping[str, str], name: str, choices: Mapping[str, T], default: T) -> T:
    """Return what the word of an option stands for. Case and blanks around it do not matter.

    Args:
        choices: By word, as documents write it.

    Raises:
        ValueError: it is none of these words.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    for word, meaning in choices.items():
        if word.lower() == text.strip().lower():
            return meaning
    raise ValueError(f"option {name}: {text!r}, want {_or(list(choices))}")


def json_object(name: str, text: str, example: str) -> dict[str, Any]:
    """Return the JSON object that is the value of an option.

    Args:
        example: A value that is right, for the error.

    Raises:
        ValueError: it is not a JSON object, or a key is there twice.
    """
    try:
        content = json.loads(text, object_pairs_hook=_without_duplicates)
    except (json.JSONDecodeError, RecursionError):
        content = None
    except ValueError as error:
        raise ValueError(f"option {name}: {error} in {text!r}") from None
    if not isinstance(content, dict):
        raise ValueError(f"option {name}: want JSON like {example}, got {text!r}")
    return content


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is there twice")
    return by_name


def _or(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
