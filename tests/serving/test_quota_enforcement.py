"""The quota of each client, and how long it makes the client wait."""

from collections.abc import Mapping

import pytest

from spindle.metadata.client_quotas import ClientQuotasImage, QuotaEntity, quota_entity
from spindle.serving.context import RequestContext
from spindle.serving.quotas import enforcement
from spindle.serving.quotas.enforcement import ClientQuotas
from spindle.serving.quotas.limits import QuotaLimits

USER, CLIENT = "user", "client-id"


def entity(**names: str | None) -> QuotaEntity:
    return quota_entity([(kind.replace("_", "-"), name) for kind, name in names.items()])


LEVELS = [
    (entity(user="u", client_id="c"), ("u", "c")),
    (entity(user="u", client_id=None), ("u", "c")),
    (entity(user="u"), ("u", "")),
    (entity(user=None, client_id="c"), ("u", "c")),
    (entity(user=None, client_id=None), ("u", "c")),
    (entity(user=None), ("u", "")),
    (entity(client_id="c"), ("", "c")),
    (entity(client_id=None), ("", "c")),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_level_wins(first: int) -> None:
    quotas = {LEVELS[level][0]: {"k": float(level)} for level in range(first, len(LEVELS))}
    limit = QuotaLimits(quotas, "k").of("u", "c")
    assert limit is not None
    assert limit == (LEVELS[first][1], float(first))


def test_nothing_limits_a_stranger() -> None:
    quotas = {
        entity(user="u"): {"k": 1.0},
        entity(client_id="c"): {"k": 2.0},
        entity(user=None): {"other": 3.0},
        entity(ip=None): {"k": 4.0},
    }
    limits = QuotaLimits(quotas, "k")
    assert limits
    assert limits.of("v", "d") is None
    assert limits.of("v", "") is None
    assert not QuotaLimits(quotas, "unknown")


class Broker:
    """A clock and the quotas."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.now_ms = 50_000
        self.quotas = ClientQuotas(11, 1000, lambda: self.now_ms)
        self.set(quotas)

    def set(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.quotas.update(ClientQuotasImage(quotas))

    def produce(self, size_bytes: int, client_id: str = "c", user: str = "u") -> int:
        return self.quotas.charge_produce(context(client_id, user), size_bytes, is_answered=True)


def context(client_id: str = "c", user: str = "u") -> RequestContext:
    return RequestContext(0, 9, 1, client_id, "127.0.0.1", "PLAINTEXT", f"User:{user}")


def test_a_producer_over_its_rate_waits_until_it_is_within() -> None:
    broker = Broker({entity(client_id="c"): {"producer_byte_rate": 1000.0}})
    assert broker.quotas.is_active
    assert broker.produce(10_000) == 0
    wait_ms = broker.produce(10_000)
    assert wait_ms == 10_000
    assert broker.produce(10**9, client_id="another") == 0
    broker.now_ms += 11_000
    assert broker.produce(10_000) == 0


def test_users_share_what_their_entity_shares() -> None:
    broker = Broker(
        {
            entity(user="alone"): {"producer_byte_rate": 1000.0},
            entity(user=None, client_id=None): {"producer_byte_rate": 1000.0},
        }
    )
    assert broker.produce(9_000, "a", "alone") == 0
    assert broker.produce(9_000, "b", "alone") > 0
    assert broker.produce(9_000, "a", "other") == 0
    assert broker.produce(9_000, "b", "other") == 0
    assert broker.produce(9_000, "b", "other") > 0


def test_an_answer_over_the_rate_is_withheld_and_not_counted() -> None:
    broker = Broker({entity(user="u"): {"consumer_byte_rate": 1000.0}})
    assert broker.quotas.max_fetch_bytes(context()) == 10_000
    assert broker.quotas.max_fetch_bytes(context(user="v")) == 2**31 - 1
    assert broker.quotas.charge_fetch(context(), lambda: 8_000) == 0
    for _ in range(5):
        assert broker.quotas.charge_fetch(context(), lambda: 4_000) == 2_000
    assert broker.quotas.charge_fetch(context(), lambda: 2_000) == 0


def test_an_answer_is_measured_only_where_its_size_matters() -> None:
    broker = Broker({entity(user="u"): {"request_percentage": 100.0}})

    def never() -> int:
        raise AssertionError("measured")

    assert broker.quotas.charge_fetch(context(), never) == 0


def test_thread_time_is_limited_and_waits_one_window_at_most() -> None:
    broker = Broker({entity(client_id=None): {"request_percentage": 1.0}})
    broker.quotas.charge_time(context(), 0.09)
    assert broker.quotas.charge_request(context()) == 0
    broker.quotas.charge_time(context(), 0.02)
    assert broker.quotas.charge_request(context()) == 1000
    assert broker.produce(1) == 1000
    assert broker.quotas.charge_produce(context(), 1, is_answered=False) == 0
    assert broker.quotas.charge_request(context("another")) == 0


def test_changes_hold_at_once_and_keep_what_was_used() -> None:
    who = entity(client_id="c")
    broker = Broker({who: {"producer_byte_rate": 1e9}})
    changes: list[bool] = []
    broker.quotas.on_change(lambda: changes.append(broker.quotas.is_active))
    assert broker.produce(50_000) == 0
    broker.set({who: {"producer_byte_rate": 1000.0}})
    assert broker.produce(0) == 40_000
    broker.set({})
    assert broker.produce(10**9) == 0
    broker.set({})
    assert changes == [True, False]


def test_invented_client_ids_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enforcement, "_MAX_RATES", 50)
    broker = Broker({entity(client_id=None): {"producer_byte_rate": 1000.0}})
    for number in range(500):
        assert broker.produce(20_000, client_id=f"c{number}") > 0
    assert len(broker.quotas._produce._rates) <= 50
    assert broker.produce(0, client_id="c499") > 0
    broker.now_ms += 60_000
    for number in range(100):
        broker.produce(1, client_id=f"d{number % 3}")
    assert len(broker.quotas._produce._rates) < 50


def test_connections_have_a_rate_by_address() -> None:
    broker = Broker(
        {
            entity(ip=None): {"connection_creation_rate": 1.0},
            entity(ip="10.0.0.1"): {"connection_creation_rate": 100.0},
        }
    )
    charge = broker.quotas.charge_connection
    assert [charge("10.0.0.2") for _ in range(12)] == [0] * 10 + [1000] * 2
    assert [charge("10.0.0.1") for _ in range(12)] == [0] * 12
    assert charge("10.0.0.3") == 0
    broker.now_ms += 11_000
    assert charge("10.0.0.2") == 0
    assert broker.produce(10**9) == 0
