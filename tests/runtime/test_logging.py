"""Log lines in both forms, and the banner."""

import json
import logging
import re
from pathlib import Path

import pytest
from node_harness import Home, connected, running

from spindle.common.errors import ConfigError
from spindle.common.native import native_text
from spindle.runtime.banner import identity_lines
from spindle.runtime.logging_setup import JsonFormatter, TextFormatter


def record(level: int, message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("spindle.x", level, "x.py", 1, message, args, None)


def test_text_lines_look_like_those_of_kafka() -> None:
    formatter = TextFormatter()
    line = formatter.format(record(logging.WARNING, "disk %s is slow", "a"))
    assert re.fullmatch(
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARN disk a is slow \(spindle\.x\)", line
    )
    assert "] FATAL end (" in formatter.format(record(logging.CRITICAL, "end"))
    assert "] INFO ok (" in formatter.format(record(logging.INFO, "ok"))


def test_json_lines_are_one_object_each() -> None:
    formatter = JsonFormatter()
    broken = record(logging.ERROR, "two\nlines \N{SNOWMAN}")
    try:
        raise ValueError("why")
    except ValueError as error:
        broken.exc_info = (ValueError, error, error.__traceback__)
    text = formatter.format(broken)
    assert "\n" not in text
    line = json.loads(text)
    assert line["message"] == "two\nlines \N{SNOWMAN}"
    assert (line["level"], line["logger"], line["thread"]) == ("ERROR", "spindle.x", "MainThread")
    assert line["error"].endswith("ValueError: why")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert json.loads(formatter.format(record(logging.WARNING, "x")))["level"] == "WARN"


def test_the_form_is_a_checked_key(tmp_path: Path) -> None:
    assert Home(tmp_path).config().text("spindle.log.format") == "text"
    with pytest.raises(ConfigError, match=r"spindle\.log\.format"):
        Home(tmp_path, spindle_log_format="xml").config()


def test_native_code_is_switched_off_by_a_checked_key(tmp_path: Path) -> None:
    off = Home(tmp_path, spindle_native_enable="false").config()
    assert [line for line in identity_lines(off, "id") if "native" in line] == [
        "native code: off (spindle.native.enable=false); everything runs in Python"
    ]
    assert native_text() in identity_lines(Home(tmp_path).config(), "id")
    with pytest.raises(ConfigError, match=r"spindle\.native\.enable"):
        Home(tmp_path, spindle_native_enable="maybe").config()


async def test_the_banner_names_real_ports_ids_and_sizes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("spindle")
    before = logger.propagate
    logger.propagate = True
    try:
        with caplog.at_level(logging.INFO, logger="spindle"):
            home = Home(tmp_path, cordoned_log_dirs=str(tmp_path / "disk2")).format()
            async with running(home) as node, connected(node) as client:
                await client.create_topic("a", partitions=2)
            caplog.clear()
            async with running(home) as node:
                assert node.broker is not None
                port = node.broker.listeners[0].port
            text = "\n".join(caplog.messages)
            assert re.search(r"Spindle \S+, Python 3\.\d+\.\d+", text)
            assert re.search(
                r"node 1 \(broker, controller\) of cluster 4L6g3nShT-eMCtK--X86sw", text
            )
            here = f"127.0.0.1:{port}"
            assert f"listener PLAINTEXT on {here} (PLAINTEXT), advertised as {here}" in text
            assert re.search(r"listener CONTROLLER on 127\.0\.0\.1:[1-9]", text)
            directory = r"log directory \S+/disk{}, id [\w-]{{22}}: {} partitions, 0 B{}$"
            for number, count, rest in ((1, 1, ", holds the metadata log"), (2, 0, ", cordoned")):
                assert re.search(directory.format(number, count, rest), text, re.MULTILINE)
            assert "metadata.version" in text
    finally:
        logger.propagate = before
