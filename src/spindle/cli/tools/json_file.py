"""JSON files that tools are given, with names and types checked on the way in."""

import json
from typing import Any, Final

from spindle.cli.tools.failures import ToolFailed
from spindle.common.ids import TopicPartition

OPERATION: Final = "org.apache.kafka.tools.AdminOperationException"
COMMAND: Final = "org.apache.kafka.tools.AdminCommandFailedException"
_VERSION: Final = 1


def read_file(path: str) -> str:
    """Return the text of a file.

    Raises:
        ToolFailed: it cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        message = f"Unable to read file {path}"
        plainly = f"{message}: {error.strerror}"
        raise ToolFailed(message, "java.io.IOException", plainly) from None


def parse_document(text: str) -> dict[str, Any]:
    """Return the JSON object in a text, which has format version 1.

    Raises:
        ToolFailed: the text is not a JSON object, or has another version.
    """
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ToolFailed("The input string is not a valid JSON", OPERATION)
    version = document.get("version", _VERSION)
    if version != _VERSION:
        raise ToolFailed(f"Not supported version field value {version}", OPERATION)
    return document


def entries(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects in a document.

    Raises:
        ToolFailed: it is missing, or something else.
    """
    if name not in document:
        raise ToolFailed(f"Missing {name} field", OPERATION)
    listed = document[name]
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise ToolFailed(f"the field {name} is not a list of objects", OPERATION)
    return listed


def whole_number(entry: dict[str, Any], name: str) -> int:
    """Return a number in an entry.

    Raises:
        ToolFailed: it is missing, or something else.
    """
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ToolFailed(f"the field {name} is {value!r} in {json.dumps(entry)}, want a number")
    return value


def partition_of(entry: dict[str, Any]) -> TopicPartition:
    """Return the partition that `topic` and `partition` of an entry name.

    Raises:
        ToolFailed: a field is missing, or something else.
    """
    topic = entry.get("topic")
    if not isinstance(topic, str):
        raise ToolFailed(f"the field topic is {topic!r} in {json.dumps(entry)}, want a name")
    return TopicPartition(topic, whole_number(entry, "partition"))
