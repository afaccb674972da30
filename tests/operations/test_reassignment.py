"""Reassignments as an execution writes them into its file, and damaged ones."""

import pytest

from spindle.common.ids import TopicPartition
from spindle.operations.reassignment import Plan, Replica, parse_plan_json, plan_json

FIRST, SECOND = (TopicPartition("t", number) for number in range(2))


def test_a_plan_comes_back_as_it_was_written() -> None:
    plan = Plan({FIRST: (1, 2), SECOND: (3,)}, {Replica(2, FIRST): "/b"})
    assert parse_plan_json(plan_json(plan.replicas, plan.directories)) == plan
    assert parse_plan_json('{"version":1}') == Plan({})


@pytest.mark.parametrize(
    "entry",
    [
        "5",
        '{"topic": 5, "partition": 0, "replicas": [1]}',
        '{"topic": "t", "partition": "0", "replicas": [1]}',
        '{"topic": "t", "partition": 0, "replicas": ["1"]}',
        '{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [5]}',
        '{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/a"]}',
    ],
)
def test_a_damaged_entry_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is not a partition with"):
        parse_plan_json(f'{{"partitions": [{entry}]}}')


@pytest.mark.parametrize("text", ["[]", "5", '{"partitions": {}}', '{"partitions": null}', "{cut"])
def test_a_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is an object|Expecting"):
        parse_plan_json(text)
