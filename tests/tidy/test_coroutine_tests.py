"""Tests that are coroutine functions: a failure fails, and none is passed over."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
TOP = Path(__file__).parents[2]

TESTS = """
import asyncio
from hypothesis import given, strategies as st

async def test_passes():
    await asyncio.sleep(0)

async def test_fails():
    await asyncio.sleep(0)
    assert False, "after the first wait"

@given(st.integers())
async def test_generated_fails(number):
    assert False, "a generated example"

async def test_leaves_a_task():
    global task
    task = asyncio.create_task(asyncio.Event().wait())

async def test_has_a_limit(monkeypatch):
    await asyncio.Event().wait()

def test_runs_no_coroutine():
    return test_passes()

def test_awaits_no_coroutine():
    test_passes()
"""


def test_a_coroutine_test_fails_when_its_body_fails(pytester: pytest.Pytester) -> None:
    limits = (TOP / "tests/conftest.py").read_text(encoding="utf-8")
    for name, seconds in (("COROUTINE_LIMIT_S", "0.1"), ("ENDING_LIMIT_S", "0.01")):
        assert f"{name}: Final = " in limits
        limits += f"\n{name} = {seconds}\n"
    pytester.makeconftest(limits)
    pytester.makepyfile(TESTS)
    (pytester.path / "pyproject.toml").write_bytes((TOP / "pyproject.toml").read_bytes())
    run = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-o", "pythonpath=", "-o", "testpaths=", "-o", "addopts="
    )
    run.assert_outcomes(passed=1, failed=6)
    run.stdout.fnmatch_lines_random(
        ["*after the first wait*", "*a generated example*", "*left tasks behind*", "*TimeoutError*"]
    )
