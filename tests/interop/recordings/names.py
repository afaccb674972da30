"""Names in place of the ids, ports, times and paths of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from peers.node import Node

_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \w+ \d{4}")
_STACK_FRAME = re.compile(r"^\s+at [\w.$/<>]+\(|^\s+\.\.\. \d+ more")
_FORMATTING = re.compile(r"^Formatting ")
_NOT_COMPARED = re.compile(r"^Bootstrap metadata: |^ERROR |^\tSuppressed: |^ \(org\.apache\.kafka")
"""Java objects that Kafka's tools print, and the lines of their log, which repeat the error."""
_ASSIGNMENT = '{"version":1,"partitions":'
"""The present assignment, with directories that brokers may have chosen by chance."""
_PLACE = re.compile(r"(?<=<n\d)d\d(?=>)")
_ERROR_START = re.compile(r"^(?:Error: |Error while executing .*?(?: : |$)|Caused by: )")
_CLASS = re.compile(
    r"(?:\b(?:java|joptsimple|org\.apache\.kafka)\.[\w.$]+(?:Exception|Error)(?:: |$))+"
)
_RANDOM = ("incarnationId", "salt", "storedKey", "serverKey")
_PATTERNS = (
    (re.compile(r"(?<=Log directory <n\d)d\d(?=> is already)"), "d?"),
    (re.compile(r"\.[0-9a-f]{32}-"), ".<hex>-"),
    (re.compile(r"'[A-Za-z0-9_-]{22}'"), "'<id>'"),
    (re.compile(r"(?<=TopicId: )[A-Za-z0-9_-]{22}"), "<id>"),
    (re.compile(r"(adminclient|producer|consumer)-\d+"), r"\1-<n>"),
    (re.compile(r"(?<=epoch )\d{2,}|(?<=Epoch: )\d+$"), "<epoch>"),
    (re.compile(r"^((?:LeaderEpoch|HighWatermark|MaxFollower\w+):\s+)-?\d+", re.M), r"\1<n>"),
)


class Names:
    """Replaces what is particular to a run.

    Directory ids have the name of their place, such as `<n1d2>`, with an apostrophe for each
    earlier id of the place; topic ids that of their topic.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = list(nodes)
        self._words: dict[str, str] = {}
        self._uses: dict[str, int] = {}
        for node in self._nodes:
            name = f"n{node.node_id}"
            for number, path in enumerate(node.log_dirs, 1):
                self._words[str(path)] = f"<{name}d{number}>"
            self._words[str(node.properties_file)] = f"<{name}.properties>"
            for address, end in ((node.bootstrap, ""), (node.controller, "c")):
                self._words[address] = f"<{name}{end}>"
                port = address.rpartition(":")[2]
                self._words[port] = f"<port of {name}{end}>"
            self._words[node.cluster_id] = "<cluster>"

    def add(self, text: str, name: str) -> None:
        """Let a text have a name from now on; a second text of the name has an apostrophe."""
        if text and text not in self._words:
            count = self._uses[name] = self._uses.get(name, 0) + 1
            self._words[text] = f"<{name}{chr(39) * (count - 1)}>"

    def learn_directories(self) -> None:
        """Read the directory ids in the files."""
        for node in self._nodes:
            for number, path in enumerate(node.log_dirs, 1):
                try:
                    lines = (path / "meta.properties").read_text().splitlines()
                except OSError:
                    continue
                for line in lines:
                    if line.startswith("directory.id="):
                        place = self._words[str(path)].strip("<>") or f"n{node.node_id}d{number}"
                        self.add(line.partition("=")[2], f"{place} id")

    def plain(self, text: str) -> str:
        """Return a text with names in place of what is particular to the run."""
        for word in sorted(self._words, key=len, reverse=True):
            if word.isdigit():
                text = re.sub(rf"\b{word}\b", self._words[word], text)
            else:
                text = text.replace(word, self._words[word])
        text = text.replace("localhost/<", "<").replace("/<n", "<n")
        for pattern, name in _PATTERNS:
            text = pattern.sub(name, text)
        return _DATE.sub("<date>", text)

    def output(self, text: str) -> list[str]:
        """Return the lines of a tool's output, each once in a row, without Java's classes.

        Lines on directories that are formatted, and directories in JSON, have a hash map's order.
        """
        lines: list[str] = []
        for line in text.splitlines():
            if _STACK_FRAME.match(line) or _NOT_COMPARED.match(line):
                continue
            plain = _ERROR_START.sub("", self.plain(_ordered_json(line)).rstrip())
            if line.startswith(_ASSIGNMENT):
                plain = _PLACE.sub("d?", plain)
            # A cause follows in the line of Spindle's tools, and in its own line in Kafka's.
            parts = _CLASS.split(plain) if not line.startswith("{") else [plain]
            lines += [part.removesuffix(": ") for part in parts if part.strip()]
        lines = [line for number, line in enumerate(lines) if line not in lines[:number][-2:]]
        places = [number for number, line in enumerate(lines) if _FORMATTING.match(line)]
        for number, line in zip(places, sorted(lines[n] for n in places), strict=True):
            lines[number] = line
        return lines

    def record(self, value: Any) -> Any:
        """Return the data of a record with names, and with arrays in a fixed order."""
        if isinstance(value, dict):
            return {key: self._field(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.record(item) for item in value]
        return self.plain(value) if isinstance(value, str) else value

    def _field(self, key: str, value: Any) -> Any:
        if key == "port":
            return self.plain(str(value))
        if key == "brokerEpoch":
            return "<epoch>"
        if key in _RANDOM:
            return "<id>" if key == "incarnationId" else "<bytes>"
        if key == "features":
            return sorted(map(_level_range, value))
        value = self.record(value)
        return sorted(value) if key in ("logDirs", "cordonedLogDirs") and value else value


def _level_range(feature: dict[str, Any]) -> str:
    """Return a feature of a registration as text; Kafka writes them in the order of a hash map."""
    name, first, last = (
        feature[key] for key in ("name", "minSupportedVersion", "maxSupportedVersion")
    )
    return f"{name} {first} to {last}"


def _ordered_json(line: str) -> str:
    if not line.startswith('{"'):
        return line
    try:
        document = json.loads(line)
    except ValueError:
        return line
    return json.dumps(_ordered(document), separators=(",", ":"))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "<size>" if key == "size" and item else _ordered(item)
            for key, item in value.items()
        }
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sorted((_ordered(item) for item in value), key=_place)
    return value


def _place(item: dict[str, Any]) -> str:
    """Return what an array of directories, partitions or brokers is ordered by."""
    return str(item.get("logDir", item.get("partition", item.get("broker", item))))
