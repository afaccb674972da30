"""The destination and the format of a node's log lines.

Levels have Kafka's names. While the node runs, they are changed like those of broker loggers
(KIP-412).
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

TEXT: Final = "text"
JSON: Final = "json"

_LEVELS: Final = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}


def level_name(record: logging.LogRecord) -> str:
    """Return Kafka's name of a record's level."""
    return _LEVELS.get(record.levelno, record.levelname)


class TextFormatter(logging.Formatter):
    """Kafka's default layout: `[2026-01-31 12:00:00,000] WARN message (logger)`."""

    def __init__(self) -> None:
        super().__init__(
            "[%(asctime)s,%(msecs)03d] %(kafka_level)s %(message)s (%(name)s)", "%Y-%m-%d %H:%M:%S"
        )

    def format(self, record: logging.LogRecord) -> str:
        record.kafka_level = level_name(record)
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC, ISO 8601), level, logger, thread, message, and error if any."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level_name(record),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(form: str = TEXT, level: int = logging.INFO) -> None:
    """Write log lines of the form `text` or `json` to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if form == JSON else TextFormatter())
    root = logging.getLogger("spindle")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
