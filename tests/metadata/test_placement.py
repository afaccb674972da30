"""Replica placement: the properties of Kafka's striped placer."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.common.errors import ApiError, ErrorCode
from spindle.metadata.placement import ReplicaPlacer, UsableBroker


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(i, rack, i in fenced) for i, rack in enumerate(racks)]


def place(usable: list[UsableBroker], count: int, factor: int, seed: int = 0) -> list[list[int]]:
    return ReplicaPlacer(usable, Random(seed)).place(count, factor)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replicas_are_distinct_brokers_and_leaders_are_unfenced(data: st.DataObject) -> None:
    racks = data.draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=8))
    fenced = tuple(data.draw(st.sets(st.integers(1, 7))))
    usable = brokers(*racks, fenced=fenced)
    factor = data.draw(st.integers(1, len(usable)))
    placed = place(usable, 12, factor, data.draw(st.integers(0, 99)))
    assert len(placed) == 12
    for replicas in placed:
        assert len(replicas) == factor
        assert len(dict.fromkeys(replicas)) == factor
        assert replicas[0] not in fenced


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(0, 99))
def test_each_broker_leads_once_before_any_leads_twice(count: int, seed: int) -> None:
    placed = place(brokers(*[None] * count), count, 1, seed)
    assert sorted(replicas[0] for replicas in placed) == list(range(count))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 99))
def test_racks_are_balanced_before_brokers(seed: int) -> None:
    usable = brokers("a", "a", "a", "b", "c")
    rack_of = {broker.broker_id: broker.rack for broker in usable}
    for replicas in place(usable, 40, 3, seed):
        assert Counter(rack_of[replica] for replica in replicas) == {"a": 1, "b": 1, "c": 1}


def test_a_fenced_broker_is_used_when_its_rack_has_no_other() -> None:
    placed = place(brokers(None, None, fenced=(1,)), 5, 2)
    assert placed == [[0, 1]] * 5


@pytest.mark.parametrize("odd_id", [-1, -(2**31), 2**31 - 1])
def test_every_broker_id_ends_the_placement(odd_id: int) -> None:
    usable = [UsableBroker(0, None, False), UsableBroker(odd_id, None, False)]
    assert {tuple(sorted(replicas)) for replicas in place(usable, 5, 2)} == {
        tuple(sorted((0, odd_id)))
    }


def test_the_same_seed_places_the_same() -> None:
    usable = brokers("a", "b", None, "a")
    assert place(usable, 30, 3, 5) == place(usable, 30, 3, 5)
    assert place(usable, 30, 3, 5) != place(usable, 30, 3, 6)


@pytest.mark.parametrize(
    ("usable", "factor", "text"),
    [
        (brokers(None), 0, "the replication factor must be positive"),
        (brokers(None), -1, "the replication factor must be positive"),
        (
            brokers(None),
            2,
            "The target replication factor of 2 cannot be reached because only 1 broker(s) are "
            "registered or some brokers have all their log directories cordoned.",
        ),
        (
            brokers(None, fenced=(0,)),
            1,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        ),
        ([], 1, "All brokers are currently fenced, or have all"),
    ],
)
def test_an_impossible_placement_says_why(
    usable: list[UsableBroker], factor: int, text: str
) -> None:
    with pytest.raises(ApiError) as caught:
        place(usable, 1, factor)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert text in str(caught.value.message)
