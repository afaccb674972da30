"""Tables, plans and times of `kafka-consumer-groups`."""

from typing import cast

import pytest

from spindle.cli.main import run
from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.groups import end_offsets
from spindle.cli.tools.groups_offsets import outcome_lines, parse_partitions
from spindle.cli.tools.groups_reset import (
    parse_date_time,
    parse_duration_ms,
    parse_plan,
    plan_lines,
)
from spindle.cli.tools.groups_text import (
    assignment_text,
    listing_lines,
    member_lines,
    offset_lines,
    partition_rows,
    reset_lines,
    state_lines,
)
from spindle.client.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupOffset,
    MemberDescription,
)
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress, ClusterView, PartitionView, TopicView
from spindle.client.offsets import FoundOffset
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MEMBER = MemberDescription("m-1", None, "c", "/h", (T1, T0))


def group(*members: MemberDescription, state: str = "Stable") -> GroupDescription:
    at = BrokerAddress(1, "h", 9092)
    return GroupDescription("g", "Classic", state, "range", at, members)


def test_partitions_are_listed_with_their_lag() -> None:
    committed = {T0: GroupOffset(3, -1, ""), U0: GroupOffset(1, 4, "")}
    rows = partition_rows(group(MEMBER), committed, {T0: 10, T1: 5, U0: 1})
    assert [(row.partition, row.lag) for row in rows] == [(T0, 7), (T1, None), (U0, 0)]
    lines = offset_lines(rows, verbose=False)
    assert lines[:2] == [
        "",
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG"
        "             CONSUMER-ID     HOST            CLIENT-ID",
    ]
    assert lines[2].split() == ["g", "t", "0", "3", "10", "7", "m-1", "/h", "c"]
    assert lines[4].split() == ["g", "u", "0", "1", "1", "0", "-", "-", "-"]
    assert offset_lines(rows, verbose=True)[4].split()[3] == "4"


def test_members_are_listed_with_instance_ids_if_verbose() -> None:
    assert member_lines(group(), verbose=False) == [
        "",
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ",
    ]
    static = MemberDescription("m-2", "i", "c", "/h", (), 5, (T0,))
    lines = member_lines(group(MEMBER, static), verbose=True)
    assert "GROUP-INSTANCE-ID" in lines[1]
    assert lines[2].split() == ["g", "m-1", "/h", "c", "2", "-", "t:0,1", "-", "-"]
    assert lines[3].split() == ["g", "m-2", "i", "/h", "c", "0", "5", "-", "-", "t:0"]
    assert assignment_text([U0, T1, T0]) == "t:0,1;u:0"


def test_the_state_of_a_group() -> None:
    lines = state_lines(group(MEMBER), verbose=False)
    assert lines[2] == (
        "g               h:9092  (1)               range                Stable               1"
    )


def test_groups_are_listed_with_their_types() -> None:
    groups = [GroupListing("g", "consumer", "Empty", "classic")]
    assert listing_lines(groups, with_type=True, with_state=False) == [
        "GROUP                     TYPE                ",
        "g                         Classic             ",
    ]


def test_new_positions_as_a_table_and_as_a_plan() -> None:
    offsets = {"g": {T1: 5, T0: 3}}
    assert reset_lines(offsets) == [
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
        "g               t               1          5",
        "g               t               0          3",
    ]
    assert reset_lines({}) == [""]
    assert plan_lines(offsets, with_group=False) == "t,1,5\nt,0,3\n"
    assert parse_plan(plan_lines(offsets, with_group=True), None) == offsets
    assert parse_plan("t,1,5\n", "g") == {"g": {T1: 5}}
    with pytest.raises(ToolFailed, match="line 1 of the plan is 't,x,5'"):
        parse_plan("t,x,5\n", "g")


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-01T00:00:00.250Z", 250),
    ],
)
def test_times_are_parsed(text: str, time_ms: int) -> None:
    assert parse_date_time(text) == time_ms


@pytest.mark.parametrize("text", ["1970-01-01", "xTy"])
def test_malformed_times_are_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(ToolFailed, match="ParseException") as failed:
        parse_date_time(text)
    assert failed.value.plainly == f"{text} is not a time of the form YYYY-MM-DDTHH:mm:SS.sss"


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("PT0S", 0), ("P1D", 86_400_000), ("PT1H2M3.5S", 3_723_500), ("-PT1S", -1000)],
)
def test_durations_are_parsed(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["x", "P", "PT", "P1DT"])
def test_malformed_durations_are_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(ToolFailed, match="cannot be parsed to a Duration") as failed:
        parse_duration_ms(text)
    assert failed.value.plainly.startswith(f"{text} is not a duration of the form")


def test_partitions_are_parsed_from_topic_and_numbers() -> None:
    assert parse_partitions("t:0,1") == [T0, T1]
    with pytest.raises(ToolFailed, match="Invalid partition 'x' specified in topic arg 't:x''"):
        parse_partitions("t:x")
    with pytest.raises(ToolFailed, match="expected topic name and partitions"):
        parse_partitions("t:0:1")


def test_a_deletion_of_offsets_reports_the_group_and_each_partition() -> None:
    assert outcome_lines("g", None, {T0: None})[:2] == [
        "Request succeeded for deleting offsets from group g.",
        "",
    ]
    error = ApiError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "still read")
    lines = outcome_lines("g", error, {T0: error})
    assert lines[1] == ("Error: Encountered some partition-level error, see the follow-up details.")
    assert lines[-1].endswith("GroupSubscribedToTopicException: still read")


class OneLeader:
    """A cluster where only T0 has a leader; asking for the offset of another fails."""

    def metadata(self, topics: list[str]) -> ClusterView:
        partitions = {
            number: PartitionView(number, leader, 0, (1,), (), ())
            for number, leader in enumerate((1, -1))
        }
        broker = BrokerAddress(1, "h", 9092)
        topic = TopicView("t", ZERO_UUID, False, partitions)
        return ClusterView(brokers={1: broker}, topics={"t": topic})

    def list_offsets(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        assert list(times) == [T0]
        return {T0: FoundOffset(10, -1, -1)}


def test_the_end_of_a_partition_without_a_leader_is_unknown() -> None:
    ends = end_offsets(cast("WireClient", OneLeader()), [T0, T1])
    committed = {T0: GroupOffset(3, -1, ""), T1: GroupOffset(3, -1, "")}
    lines = offset_lines(partition_rows(group(), committed, ends), verbose=False)
    assert [line.split()[3:6] for line in lines[2:]] == [["3", "10", "7"], ["3", "-", "-"]]


def test_a_topic_that_does_not_exist_is_named(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--reset-offsets --group g --to-earliest --dry-run --topic"
    assert run(["kafka", "consumer-groups", *words.split(), "nope"]) == 1
    assert capsys.readouterr().err == "there is no topic 'nope'\n"
