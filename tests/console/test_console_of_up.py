"""The console that `spindle up` serves."""

import json
import subprocess
from pathlib import Path

import httpx
import pytest
from console_process import UP
from waiting import wait_until

from spindle.cli.main import run

pytestmark = pytest.mark.timeout(180)


def is_served(address: str) -> bool:
    try:
        return "Broker 1" in httpx.get(address, timeout=30).text
    except httpx.TransportError:
        return False


def test_up_serves_a_console_and_ends_it() -> None:
    words = (*UP, "--port", "0", "--json", "--console")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            events = map(json.loads, process.stdout)
            ready = next(event for event in events if event["event"] == "ready")
            address = ready["console"]
            wait_until(lambda: is_served(address), "the page of the console")
        finally:
            process.terminate()
            process.stdout.read()
    assert process.returncode == 0
    assert not Path(ready["folder"]).exists()
    with pytest.raises(httpx.TransportError):
        httpx.get(address, timeout=30)


def test_up_prints_the_address_of_the_console() -> None:
    with subprocess.Popen(
        (*UP, "--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if line.startswith("console "))
        finally:
            process.terminate()
            process.stdout.read()
    assert line.split()[1].startswith("http://127.0.0.1:")


def test_a_secured_cluster_is_not_shown_without_a_login(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["up", "--secure", "--console"]) == 2
    assert "--console is not for --secure" in capsys.readouterr().err


def test_a_file_of_a_console_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["console", "-b", "127.0.0.1:9", "--logins", "/nowhere/logins"]) == 2
    assert "--logins /nowhere/logins: there is no such file" in capsys.readouterr().err
