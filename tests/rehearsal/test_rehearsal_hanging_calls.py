"""A call of a client that never returns does not stop the rehearsal."""

import threading

import pytest
from confluent_kafka import KafkaException

from verification.rehearsal.transactional_clients import within


def test_a_call_that_hangs_is_given_up() -> None:
    returns = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.01, returns.wait)
    returns.set()


def test_a_call_that_fails_reports_its_error() -> None:
    def fail() -> None:
        raise KafkaException("fenced")

    with pytest.raises(KafkaException, match="fenced"):
        within(60.0, fail)
    within(60.0, lambda: None)
