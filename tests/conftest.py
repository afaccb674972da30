"""Which tests run, in which order, and what is said of them while they run.

Tests marked `full` take long: `make test` leaves them out, `make test-full` runs all of them, and
CI runs a share of their modules, another one each day.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        metavar="K/N",
        help="of the tests marked `full`, run those whose module belongs to share K of N (from 1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    share = config.getoption("--share")
    if share is not None:
        parse_share(share)
    if not config.getoption("--collect-only"):
        config.pluginmanager.register(FailuresAsTheyCome(config), "failures-as-they-come")


def parse_share(text: str) -> tuple[int, int]:
    """Return K and N of a share "K/N".

    Raises:
        UsageError: the text is not of this form, or K is not in 1 to N.
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--share {text}: K/N with K from 1 to N is needed, such as 2/6")
    return int(number), int(count)


# After the folders' own conftest, which adds markers.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the share, and let long modules begin first: no worker waits for one at the end."""
    share = config.getoption("--share")
    if share is not None:
        number, count = parse_share(share)
        full = [item for item in items if item.get_closest_marker("full") is not None]
        # Neighbours by name, which often take equally long, come into different shares.
        modules = sorted({item.path for item in full})[number - 1 :: count]
        left_out = {item for item in full if item.path not in modules}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Return 0 for modules that start Spark, 1 for those of the simulation, 2 for all others."""
    if item.get_closest_marker("spark") is not None:
        return 0
    return 1 if item.path.parent.name == "simulation" else 2


class FailuresAsTheyCome:
    """Names each failed test when it fails; pytest's own report comes at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_counted = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid} ({report.when})")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        """Say how many tests there are, once: every worker collects the same ones."""
        if not self._is_counted:
            self._is_counted = True
            modules = len({name.partition("::")[0] for name in ids})
            self._say(f"{len(ids):,} tests in {modules} modules")

    def _say(self, line: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and not hasattr(self._config, "workerinput"):
            terminal.write(f"\n{line}\n")
