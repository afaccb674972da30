"""The assignors of consumer groups: complete, balanced, and as few moves as possible."""

from hypothesis import given
from hypothesis import strategies as st

from spindle.coordinator.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    AssignorInput,
    Subscriber,
    assign_ranges,
    assign_uniformly,
)

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> AssignorInput:
    counts = {t: draw(st.integers(1, 6)) for t in (A, B, C)}
    names = [f"m{n}" for n in range(draw(st.integers(1, 5)))]
    common = draw(st.frozensets(st.sampled_from((A, B, C))))
    subscribers = [
        Subscriber(
            name,
            draw(st.none() | st.just(f"i{name}")),
            common if alike else draw(st.frozensets(st.sampled_from((A, B, C)))),
        )
        for name in names
    ]
    read = {t: n for t, n in counts.items() if any(t in s.topic_ids for s in subscribers)}
    owners = draw(st.lists(st.sampled_from([*names, "gone"]), min_size=24, max_size=24))
    current: dict[str, dict[bytes, frozenset[int]]] = {}
    # The leader of the classic group that this one was may have assigned any number.
    places = [(t, p) for t in (A, B, C) for p in range(-1, 7)]
    for (topic_id, partition), owner in zip(places, owners, strict=True):
        mine = current.setdefault(owner, {})
        mine[topic_id] = mine.get(topic_id, frozenset()) | {partition}
    return AssignorInput(subscribers, read, draw(st.sampled_from([{}, current])))


def sizes(assignment: Assignment) -> dict[str, int]:
    return {name: sum(map(len, parts.values())) for name, parts in assignment.items()}


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_exactly_one_subscriber(group: AssignorInput, name: str) -> None:
    assignment = ASSIGNORS[name](group)
    wanted = {s.member_id: s.topic_ids for s in group.subscribers}
    assert set(assignment) == set(wanted)
    given_away = [
        (topic_id, partition)
        for member_id, parts in assignment.items()
        for topic_id, partitions in parts.items()
        for partition in partitions
        if topic_id in wanted[member_id]
    ]
    assert sorted(given_away) == sorted(
        (t, p) for t, count in group.partition_counts.items() for p in range(count)
    )


@given(groups(alike=True))
def test_uniform_shares_differ_by_one_at_most(group: AssignorInput) -> None:
    share_sizes = sizes(assign_uniformly(group)).values()
    assert max(share_sizes) - min(share_sizes) <= 1


@given(groups())
def test_uniform_leaves_no_move_that_would_make_members_more_equal(group: AssignorInput) -> None:
    assignment = assign_uniformly(group)
    share_sizes = sizes(assignment)
    for member_id, parts in assignment.items():
        for other in group.subscribers:
            if other.topic_ids & set(parts):
                assert share_sizes[member_id] - share_sizes[other.member_id] <= 1


@given(groups())
def test_uniform_assignment_stays_as_it_is(group: AssignorInput) -> None:
    first = assign_uniformly(group)
    again = AssignorInput(group.subscribers, group.partition_counts, first)
    assert assign_uniformly(again) == first


def test_uniform_takes_from_the_members_only_what_the_new_one_gets() -> None:
    counts = {A: 6}
    two = [Subscriber(name, None, frozenset({A})) for name in ("x", "y")]
    before = assign_uniformly(AssignorInput(two, counts, {}))
    three = [*two, Subscriber("a", None, frozenset({A}))]
    after = assign_uniformly(AssignorInput(three, counts, before))
    assert sizes(after) == {"a": 2, "x": 2, "y": 2}
    assert after["x"][A] <= before["x"][A]
    assert after["y"][A] <= before["y"][A]


def test_ranges_of_topics_with_equally_many_partitions_are_the_same() -> None:
    members = [
        Subscriber(f"m{n}", f"i{instance}", frozenset({A, B}))
        for n, instance in enumerate((3, 1, 2))
    ]
    assignment = assign_ranges(AssignorInput(members, {A: 4, B: 4}, {}))
    assert assignment["m1"] == {A: frozenset({0, 1}), B: frozenset({0, 1})}
    assert assignment["m2"] == {A: frozenset({2}), B: frozenset({2})}
    assert assignment["m0"] == {A: frozenset({3}), B: frozenset({3})}
