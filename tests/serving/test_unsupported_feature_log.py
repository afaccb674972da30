"""Log lines about clients that ask for transactions or for APIs that are not served."""

import logging

import pytest

from spindle.serving.context import RequestContext
from spindle.serving.unsupported_feature_log import RefusalLog

MINUTE_MS = 60_000


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(clock: Clock) -> RefusalLog:
    return RefusalLog(clock)


def context(client_id: str = "orders", address: str = "10.0.0.7") -> RequestContext:
    return RequestContext(
        22, 4, 1, client_id, address, "PLAINTEXT", "User:ANONYMOUS", "librdkafka", "2.16.0"
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_client_is_named_once_in_ten_minutes(
    refusals: RefusalLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.now_ms in (0, 1, 9 * MINUTE_MS, 10 * MINUTE_MS, 11 * MINUTE_MS):
        refusals.warn(context(), "cause", f"at {clock.now_ms}")
    refusals.warn(context(address="10.0.0.8"), "cause", "another address")
    refusals.warn(context("payments"), "cause", "another client id")
    refusals.warn(context(), "other cause", "another cause")
    endings = [line.rpartition(": ")[2] for line in warnings(caplog)]
    assert endings == [
        "at 0",
        f"at {10 * MINUTE_MS}",
        "another address",
        "another client id",
        "another cause",
    ]


def test_very_many_clients_and_long_names_cost_little(
    refusals: RefusalLog, caplog: pytest.LogCaptureFixture
) -> None:
    refusals.warn(context("first"), "cause", "")
    for number in range(1000):
        refusals.warn(context(f"c{number}\n" + "x" * 30_000), "cause", "")
    refusals.warn(context("first"), "cause", "")
    lines = warnings(caplog)
    assert len(lines) == 1002, "the first client was forgotten for the thousandth other one"
    assert max(map(len, lines)) < 250
    assert "\n" not in "".join(lines)
