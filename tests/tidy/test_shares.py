"""The shares in which CI runs the long tests."""

from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
pytest_plugins = ["pytester"]


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Eight modules, each with a long test and a short one, under the project's conftest."""
    pytester.makeconftest((PROJECT / "tests/conftest.py").read_text())
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
        "markers =\n    full: takes long\n    spark: starts Spark\n"
    )
    for number in range(8):
        pytester.makepyfile(
            **{
                f"test_{number}": "import pytest\n@pytest.mark.full\ndef test_long(): pass\n"
                "def test_short(): pass\n"
            }
        )
    return pytester


def names(result: pytest.RunResult) -> set[str]:
    return {line for line in result.outlines if "::" in line}


def test_the_shares_together_are_all_long_tests_each_once(suite: pytest.Pytester) -> None:
    shares = [
        names(suite.runpytest("--collect-only", "-q", "-m", "full", "--share", f"{k}/3"))
        for k in (1, 2, 3)
    ]
    assert set.union(*shares) == {f"test_{number}.py::test_long" for number in range(8)}
    assert sum(map(len, shares)) == 8


def test_a_share_leaves_no_short_test_out(suite: pytest.Pytester) -> None:
    selected = names(suite.runpytest("--collect-only", "-q", "--share", "1/3"))
    assert {f"test_{number}.py::test_short" for number in range(8)} <= selected


@pytest.mark.parametrize("text", ["0/3", "4/3", "a"])
def test_an_impossible_share_is_refused(suite: pytest.Pytester, text: str) -> None:
    done = suite.runpytest(f"--share={text}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*--share {text}: K/N with K from 1 to N is needed*"])


def test_failures_are_named_when_they_happen(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_a="def test_wrong(): assert False\n")
    done = suite.runpytest("-q")
    lines = done.outlines
    named = lines.index("FAILED test_a.py::test_wrong (call)")
    assert named < next(n for n, line in enumerate(lines) if "= FAILURES =" in line)
