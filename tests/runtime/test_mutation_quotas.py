"""How many partitions a client may create and delete (KIP-599)."""

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.metadata.client_quotas import ClientQuotasImage, quota_entity
from spindle.runtime.controller import mutation_quotas
from spindle.runtime.controller.mutation_quotas import MutationQuotas
from spindle.serving.context import RequestContext

CREATE_TOPICS = 19
NOW_MS = 1_000_000


def image(rate: float | None) -> ClientQuotasImage:
    entity = quota_entity([("client-id", None)])
    return ClientQuotasImage({} if rate is None else {entity: {"controller_mutation_rate": rate}})


def context(version: int = 7, client_id: str = "c") -> RequestContext:
    return RequestContext(CREATE_TOPICS, version, 1, client_id, "127.0.0.1", "PLAINTEXT")


def test_new_clients_are_refused_until_nothing_is_owed() -> None:
    quotas, limits = MutationQuotas(10, 1000), image(1.0)
    first = quotas.begin(limits, CREATE_TOPICS, context(), NOW_MS)
    first.charge(8)
    first.charge(8)
    assert first.wait_ms == 0
    with pytest.raises(ApiError) as refusal:
        first.charge(1)
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert first.wait_ms == 6_000
    second = quotas.begin(limits, CREATE_TOPICS, context(), NOW_MS + 5_999)
    with pytest.raises(ApiError):
        second.charge(1)
    third = quotas.begin(limits, CREATE_TOPICS, context(), NOW_MS + 6_000)
    third.charge(1)
    assert third.wait_ms == 0


def test_old_clients_are_served_and_wait() -> None:
    quotas, limits = MutationQuotas(10, 1000), image(1.0)
    first = quotas.begin(limits, CREATE_TOPICS, context(version=5), NOW_MS)
    first.charge(30)
    assert first.wait_ms == 20_000
    first.charge(10)
    assert first.wait_ms == 30_000


def test_requests_that_are_exempt_from_the_quota() -> None:
    quotas = MutationQuotas(10, 1000)
    for limits, api_key, who in (
        (image(None), CREATE_TOPICS, context()),
        (image(1.0), CREATE_TOPICS, None),
        (image(1.0), 62, context()),
    ):
        mutations = quotas.begin(limits, api_key, who, NOW_MS)
        mutations.charge(10**6)
        mutations.charge(10**6)
        assert mutations.wait_ms == 0


def test_a_new_limit_holds_for_the_next_request() -> None:
    quotas = MutationQuotas(10, 1000)
    quotas.begin(image(1.0), CREATE_TOPICS, context(), NOW_MS).charge(110)
    old = quotas.begin(image(1.0), CREATE_TOPICS, context(version=5), NOW_MS)
    old.charge(0)
    assert old.wait_ms == 100_000
    new = quotas.begin(image(100.0), CREATE_TOPICS, context(version=5), NOW_MS)
    new.charge(0)
    assert new.wait_ms == 1_000


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_quotas, "_MAX_BUCKETS", 5)
    quotas, limits = MutationQuotas(10, 1000), image(1.0)

    def wait_ms(number: int, mutations: int) -> int:
        client = context(client_id=f"c{number}", version=5)
        begun = quotas.begin(limits, CREATE_TOPICS, client, NOW_MS)
        begun.charge(mutations)
        return begun.wait_ms

    for number in range(20):
        wait_ms(number, 20)
    is_kept = [wait_ms(number, 0) > 0 for number in reversed(range(20))]
    assert is_kept == [True] * 5 + [False] * 15
