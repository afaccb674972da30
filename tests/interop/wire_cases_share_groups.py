"""Share groups (KIP-932): members, fetches and acknowledgements, start offsets, stored states."""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from typing import Any

from wire_cases import batch, create, produce, topic
from wire_exchange import Body, Case, State

ONLY_1, ONLY_2 = range(1, 2), range(2, 3)
ONLY_12 = range(12, 13)
GROUP = "shared"
TOPIC = "audit-share"
OTHER_ID = b"\7" * 16
GROUP_CONFIG = 32
NO_TOPICS: list[Body] = []


def heartbeat(epoch: int, member: str = "m1", group: str = GROUP, topics: Any = None) -> Body:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "subscribed_topic_names": topics,
    }


def has_assignment(answer: Any) -> bool:
    return answer.assignment is not None and bool(answer.assignment.topic_partitions)


def has_records(answer: Any) -> bool:
    return any(p.acquired_records for t in answer.responses for p in t.partitions)


def acks(*batches: tuple[int, int, list[int]]) -> list[Body]:
    return [
        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        for first, last, types in batches
    ]


def named(state: State, batches: list[Body], index: int, topic_id: bytes | None) -> list[Body]:
    part = {"partition_index": index, "acknowledgement_batches": batches}
    return [{"topic_id": topic_id or state.topic_ids[TOPIC], "partitions": [part]}]


def fetch(
    epoch: int,
    *batches: tuple[int, int, list[int]],
    member: str | None = "m1",
    group: str | None = GROUP,
    index: int = 0,
    topic_id: bytes | None = None,
    **more: Any,
) -> Any:
    def body(state: State) -> Body:
        fields: Body = {
            "group_id": group,
            "member_id": member,
            "share_session_epoch": epoch,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 100_000,
            "max_records": 100,
            "batch_size": 100,
            "topics": named(state, acks(*batches), index, topic_id),
        }
        return {**fields, **more}

    return body


def acknowledge(
    epoch: int,
    *batches: tuple[int, int, list[int]],
    member: str | None = "m1",
    group: str | None = GROUP,
    index: int = 0,
    topic_id: bytes | None = None,
    **more: Any,
) -> Any:
    return lambda state: {
        "group_id": group,
        "member_id": member,
        "share_session_epoch": epoch,
        "topics": named(state, acks(*batches), index, topic_id),
        **more,
    }


def ack_case(name: str, *arguments: Any, **more: Any) -> Case:
    return Case(name, "share_acknowledge", acknowledge(*arguments, **more), ONLY_2)


def fetch_case(name: str, *arguments: Any, **more: Any) -> Case:
    return Case(name, "share_fetch", fetch(*arguments, **more), ONLY_2)


def state_of(
    partition: Body, group: str = "states", topic_id: bytes | None = None, index: int = 0
) -> Any:
    return lambda state: {
        "group_id": group,
        "topics": [{
            "topic_id": topic_id or state.topic_ids[TOPIC],
            "partitions": [{"partition": index, **partition}],
        }],
    }  # fmt: skip


def initial(epoch: int = 1, start: int = 0, **more: Any) -> Any:
    return state_of({"state_epoch": epoch, "start_offset": start}, **more)


def written(
    start: int, *batches: tuple[int, int, int, int], epoch: int = 1, leader: int = 3, **more: Any
) -> Any:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return state_of(
        {
            "state_epoch": epoch,
            "leader_epoch": leader,
            "start_offset": start,
            "state_batches": [dict(zip(names, one, strict=True)) for one in batches],
        },
        **more,
    )


def offsets_of(group: str = GROUP, topics: list[Body] | None = None) -> Body:
    return {"groups": [{"group_id": group, "topics": topics}]}


def at(name: str, *indexes: int) -> Body:
    return {"topic_name": name, "partitions": list(indexes)}


def moved(name: str, index: int, offset: int, group: str = GROUP) -> Body:
    part = {"partition_index": index, "start_offset": offset}
    return {"group_id": group, "topics": [{"topic_name": name, "partitions": [part]}]}


def deleted(*names: str, group: str = GROUP) -> Body:
    return {"group_id": group, "topics": [{"topic_name": name} for name in names]}


CASES = [
    Case("own topic", "create_topics", create(topic(TOPIC)), range(7, 8), settle_s=0.5),
    Case("begins early", "incremental_alter_configs", {"validate_only": False, "resources": [
        {"resource_type": GROUP_CONFIG, "resource_name": GROUP, "configs": [
            {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]}]},
         ONLY_1, settle_s=0.5),
    Case("first records", "produce", produce(TOPIC, batch(b"0", b"1", b"2")), ONLY_12, patient=True),
    Case("more records", "produce", produce(TOPIC, batch(b"3", b"4")), ONLY_12),
    Case("coordinator", "find_coordinator", {"key": GROUP, "key_type": 0}, ONLY_1, patient=True),

    Case("no member id", "share_group_heartbeat", heartbeat(0, "", topics=[TOPIC])),
    Case("no group id", "share_group_heartbeat", heartbeat(0, group="", topics=[TOPIC])),
    Case("epoch -2", "share_group_heartbeat", heartbeat(-2)),
    Case("no subscription", "share_group_heartbeat", heartbeat(0)),
    Case("unknown group", "share_group_heartbeat", heartbeat(1, group="nobody")),
    Case("leaves an unknown group", "share_group_heartbeat", heartbeat(-1, group="nobody")),
    Case("joins", "share_group_heartbeat", heartbeat(0, topics=[TOPIC]), until=has_assignment),
    Case("unknown member", "share_group_heartbeat", heartbeat(1, "m9")),
    Case("epoch too high", "share_group_heartbeat", heartbeat(99)),
    Case("unknown group", "share_group_describe", {"group_ids": ["nobody"]}),
    Case("with a member", "share_group_describe", {"group_ids": [GROUP], "include_authorized_operations": True}),
    Case("share groups", "list_groups", {"states_filter": [], "types_filter": ["share"]}, range(5, 6)),
    Case("a share group", "consumer_group_describe", {"group_ids": [GROUP]}),
    Case("a share group", "describe_groups", {"groups": [GROUP]}, range(6, 7)),
    Case("of a share group", "offset_commit", {
        "group_id": GROUP, "member_id": "", "generation_id_or_member_epoch": -1, "topics": []}, range(9, 10)),

    fetch_case("no group id", 0, group=None),
    fetch_case("no member id", 0, member=None),
    fetch_case("empty member id", 0, member=""),
    fetch_case("long member id", 0, member="m" * 37),
    fetch_case("session that is not open", 3, member="m2"),
    fetch_case("closes a session that is not open", -1, member="m2"),
    fetch_case("opens and acknowledges", 0, (0, 0, [1]), member="m2"),
    fetch_case("renews and fetches", 0, member="m2", is_renew_ack=True),
    ack_case("opens", 0, (0, 0, [1]), member="m2"),
    ack_case("without a session", 4, (0, 0, [1]), member="m2"),
    Case("opens", "share_fetch", fetch(0), ONLY_2, until=has_records),
    fetch_case("wrong epoch", 5),
    ack_case("accepts", 1, (0, 0, [1])),
    ack_case("accepts again", 2, (0, 0, [1])),
    ack_case("behind the end", 3, (1, 9, [1])),
    ack_case("types do not fit", 4, (1, 3, [1, 1])),
    ack_case("unknown type", 5, (1, 1, [9])),
    ack_case("negative type", 6, (1, 1, [-1])),
    ack_case("reversed", 7, (2, 1, [1])),
    ack_case("no types", 8, (1, 1, [])),
    ack_case("overlapping", 9, (1, 2, [1]), (2, 3, [1])),
    ack_case("renews without saying so", 10, (1, 1, [4])),
    ack_case("unknown topic", 11, (1, 1, [1]), topic_id=OTHER_ID),
    ack_case("unknown partition", 12, (1, 1, [1]), index=7),
    ack_case("renews", 13, (1, 1, [4]), is_renew_ack=True),
    ack_case("releases and rejects", 14, (1, 2, [2, 3])),
    ack_case("old epoch", 14, (3, 3, [1])),
    fetch_case("gets the released one again", 15),
    fetch_case("acknowledges and fetches", 16, (1, 1, [1]), max_wait_ms=50),
    fetch_case("unknown topic", 17, topic_id=OTHER_ID, max_wait_ms=50),
    ack_case("closes", -1, (3, 3, [1])),
    ack_case("closes again", -1, (4, 4, [1])),

    Case("all", "describe_share_group_offsets", offsets_of()),
    Case("named", "describe_share_group_offsets", offsets_of(topics=[at(TOPIC, 0, 7), at("nothing", 0)])),
    Case("unknown group", "describe_share_group_offsets", offsets_of("nobody")),
    Case("with a member", "alter_share_group_offsets", moved(TOPIC, 0, 1)),
    Case("with a member", "delete_share_group_offsets", deleted(TOPIC)),
    Case("with a member", "delete_groups", {"groups_names": [GROUP]}, range(2, 3)),
    Case("leaves", "share_group_heartbeat", heartbeat(-1)),
    Case("unknown group", "alter_share_group_offsets", moved(TOPIC, 0, 1, "nobody")),
    Case("unknown topic", "alter_share_group_offsets", moved("nothing", 0, 1)),
    Case("unknown partition", "alter_share_group_offsets", moved(TOPIC, 7, 1)),
    Case("moves", "alter_share_group_offsets", moved(TOPIC, 0, 2)),
    Case("moved", "describe_share_group_offsets", offsets_of()),
    Case("unknown group", "delete_share_group_offsets", deleted(TOPIC, group="nobody")),
    Case("unknown topic", "delete_share_group_offsets", deleted("nothing", "audit-two")),
    Case("deletes", "delete_share_group_offsets", deleted(TOPIC)),
    Case("deleted", "describe_share_group_offsets", offsets_of()),
    Case("share group", "delete_groups", {"groups_names": [GROUP]}, range(2, 3)),
    Case("gone", "share_group_describe", {"group_ids": [GROUP]}),

    Case("not initialized", "read_share_group_state", state_of({"leader_epoch": 0}), patient=True),
    Case("not initialized", "write_share_group_state", written(0)),
    Case("not initialized", "delete_share_group_state", state_of({})),
    Case("first", "initialize_share_group_state", initial()),
    Case("older epoch", "initialize_share_group_state", initial(0)),
    Case("negative epoch", "initialize_share_group_state", initial(-1)),
    Case("unknown topic", "initialize_share_group_state", initial(topic_id=OTHER_ID)),
    Case("unknown partition", "initialize_share_group_state", initial(index=7)),
    Case("negative partition", "initialize_share_group_state", initial(index=-1)),
    Case("first", "read_share_group_state", state_of({"leader_epoch": 2})),
    Case("older leader", "write_share_group_state", written(1, leader=1)),
    Case("older epoch", "write_share_group_state", written(1, epoch=0)),
    Case("negative leader", "write_share_group_state", written(1, leader=-1)),
    Case("batches", "write_share_group_state", written(1, (2, 3, 2, 1), (4, 4, 0, 2))),
    Case("overlap", "write_share_group_state", written(2, (3, 5, 4, 3))),
    Case("start goes back", "write_share_group_state", written(0, (9, 9, 2, 1))),
    Case("all of it", "read_share_group_state", state_of({"leader_epoch": 3})),
    Case("older leader", "read_share_group_state", state_of({"leader_epoch": 2})),
    Case("negative leader", "read_share_group_state", state_of({"leader_epoch": -1})),
    Case("unknown topic", "read_share_group_state", state_of({"leader_epoch": 3}, topic_id=OTHER_ID)),
    Case("known", "read_share_group_state_summary", state_of({"leader_epoch": 3})),
    Case("unknown group", "read_share_group_state_summary", state_of({"leader_epoch": 3}, group="none")),
    Case("known", "delete_share_group_state", state_of({})),
    Case("deleted", "read_share_group_state_summary", state_of({"leader_epoch": 3})),
]  # fmt: skip
