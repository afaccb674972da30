"""Topics by a list or a pattern, as `--topic` of several tools takes them."""

import re
from collections.abc import Callable

from spindle.cli.tools.failures import ToolFailed
from spindle.common.ids import INTERNAL_TOPICS


def topic_filter(text: str) -> Callable[[str], bool]:
    """Return a filter that accepts the topics of names or patterns separated by commas.

    Raises:
        ToolFailed: the text is not a regular expression.
    """
    pattern = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        compiled = re.compile(pattern)
    except re.error:
        raise ToolFailed(f"{pattern} is an invalid regex.", "java.lang.RuntimeException") from None
    return lambda topic: compiled.fullmatch(topic) is not None


def is_internal(topic: str) -> bool:
    """Return whether a topic belongs to the brokers themselves."""
    return topic in INTERNAL_TOPICS
