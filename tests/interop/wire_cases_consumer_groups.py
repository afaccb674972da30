"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), and older APIs on such groups."""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from typing import Any

from wire_exchange import Body, Case, State

ONLY_1 = range(1, 2)
GROUP = "modern"
GROUP_CONFIG = 32


def heartbeat(member: str = "m1", epoch: int = 0, group: str = GROUP, **more: Any) -> Body:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "topic_partitions": None,
        **more,
    }


def joining(member: str = "m1", group: str = GROUP, **more: Any) -> Body:
    fields: Body = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["audit-offsets"],
        "topic_partitions": [],
        **more,
    }
    return heartbeat(member, 0, group, **fields)


def owning(member: str, epoch: int, *partitions: int, **more: Any) -> Any:
    """Return a heartbeat of a member that owns these partitions of audit-offsets."""

    def body(state: State) -> Body:
        topics = [{"topic_id": state.topic_ids["audit-offsets"], "partitions": list(partitions)}]
        return heartbeat(member, epoch, topic_partitions=topics if partitions else [], **more)

    return body


def commit(member: str, epoch: int, *, group: str = GROUP) -> Any:
    def body(state: State) -> Body:
        return {
            "group_id": group,
            "member_id": member,
            "generation_id_or_member_epoch": epoch,
            "topics": [{
                "name": "audit-offsets",
                "topic_id": state.topic_ids["audit-offsets"],
                "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
            }],
        }  # fmt: skip

    return body


def fetched(member: str | None, epoch: int, group: str = GROUP) -> Body:
    return {
        "group_id": group,
        "topics": None,
        "groups": [{"group_id": group, "topics": None, "member_id": member, "member_epoch": epoch}],
    }


def describe(*groups: str, operations: bool = False) -> Body:
    return {"group_ids": list(groups), "include_authorized_operations": operations}


def classic(metadata: bytes, member: str = "c1", kind: str = "consumer") -> Body:
    return {
        "group_id": GROUP,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 1_000,
        "member_id": member,
        "protocol_type": kind,
        "protocols": [{"name": "range", "metadata": metadata}],
    }


CASES = [
    Case("assigns at once", "incremental_alter_configs", {"validate_only": False, "resources": [
        {"resource_type": GROUP_CONFIG, "resource_name": name, "configs": [
            {"name": "consumer.assignment.interval.ms", "config_operation": 0, "value": "0"}]}
        for name in (GROUP, "modern-static")]}, ONLY_1, settle_s=0.5),
    Case("empty group", "consumer_group_heartbeat", joining(group="")),
    Case("blank group", "consumer_group_heartbeat", joining(group=" ")),
    Case("no member id", "consumer_group_heartbeat", joining("", group="refused"), ONLY_1),
    Case("empty instance", "consumer_group_heartbeat", joining(instance_id="")),
    Case("empty rack", "consumer_group_heartbeat", joining(rack_id="")),
    Case("no timeout", "consumer_group_heartbeat", joining(rebalance_timeout_ms=-1)),
    Case("no partitions", "consumer_group_heartbeat", joining(topic_partitions=None)),
    Case("no topics", "consumer_group_heartbeat", joining(subscribed_topic_names=None)),
    Case("empty topics", "consumer_group_heartbeat", joining(subscribed_topic_names=[])),
    Case("bad assignor", "consumer_group_heartbeat", joining(server_assignor="nope")),
    Case("empty assignor", "consumer_group_heartbeat", joining(server_assignor="")),
    Case("bad regex", "consumer_group_heartbeat", joining(subscribed_topic_regex="a("), ONLY_1),
    Case("epoch -3", "consumer_group_heartbeat", heartbeat(epoch=-3)),
    Case("epoch -2 without instance", "consumer_group_heartbeat", heartbeat(epoch=-2)),
    Case("unknown group", "consumer_group_heartbeat", heartbeat(epoch=4, group="modern-none")),
    Case("leaves an unknown group", "consumer_group_heartbeat", heartbeat(epoch=-1, group="modern-none")),
    Case("none", "consumer_group_describe", describe()),
    Case("unknown", "consumer_group_describe", describe("modern-none", "")),
    Case("first member", "consumer_group_heartbeat", joining(), ONLY_1),
    Case("nothing new", "consumer_group_heartbeat", heartbeat("m1", 2), ONLY_1),
    Case("owns all", "consumer_group_heartbeat", owning("m1", 2, 0, 1, 2), ONLY_1),
    Case("lost answer", "consumer_group_heartbeat", joining(), ONLY_1),
    Case("greater epoch", "consumer_group_heartbeat", heartbeat("m1", 9), ONLY_1),
    Case("smaller epoch", "consumer_group_heartbeat", heartbeat("m1", 1), ONLY_1),
    Case("unknown member", "consumer_group_heartbeat", heartbeat("who", 2), ONLY_1),
    Case("unknown instance", "consumer_group_heartbeat", heartbeat("m1", 2, instance_id="i"), ONLY_1),
    Case("one member", "consumer_group_describe", describe(GROUP, operations=True)),
    Case("of a consumer group", "describe_groups", {"groups": [GROUP]}),
    Case("classic member", "join_group", {
        "group_id": GROUP, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 1_000, "member_id": "",
        "protocol_type": "other", "protocols": [{"name": "range", "metadata": b"m"}]}, range(9, 10)),
    Case("classic member, empty subscription", "join_group", classic(b""), range(9, 10)),
    Case("classic member, unreadable subscription", "join_group", classic(b"\x00\x01\x00\x00\x00\x09x"), range(9, 10)),
    Case("classic member, subscription without topics", "join_group", classic(b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", ""), range(9, 10)),
    Case("classic heartbeat of a consumer member", "heartbeat", {
        "group_id": GROUP, "generation_id": 2, "member_id": "m1"}, range(4, 5)),
    Case("classic heartbeat of nobody", "heartbeat", {
        "group_id": GROUP, "generation_id": 2, "member_id": "who"}, range(4, 5)),
    Case("classic sync of a consumer member", "sync_group", {
        "group_id": GROUP, "generation_id": 2, "member_id": "m1", "protocol_type": "consumer",
        "protocol_name": "range", "assignments": []}, range(5, 6)),
    Case("with a consumer group", "list_groups", {"states_filter": [], "types_filter": ["consumer"]}, range(5, 6)),
    Case("reconciling ones", "list_groups", {"states_filter": ["Reconciling"], "types_filter": []}),
    Case("stable consumer groups", "list_groups", {"states_filter": ["stable"], "types_filter": ["Consumer"]}),
    Case("member of the group", "offset_commit", commit("m1", 2), range(9, 11)),
    Case("old version", "offset_commit", commit("m1", 2), range(7, 9)),
    Case("stale epoch", "offset_commit", commit("m1", 1), range(9, 11)),
    Case("future epoch", "offset_commit", commit("m1", 3), range(9, 11)),
    Case("unknown member of a consumer group", "offset_commit", commit("who", 2), range(9, 11)),
    Case("no member of a consumer group", "offset_commit", commit("", -1), range(9, 11)),
    Case("member", "offset_fetch", fetched("m1", 2), range(9, 11)),
    Case("stale member", "offset_fetch", fetched("m1", 1), range(9, 11)),
    Case("unknown member", "offset_fetch", fetched("who", 2), range(9, 11)),
    Case("nobody", "offset_fetch", fetched(None, -1), range(9, 11)),
    Case("read by the group", "offset_delete", {"group_id": GROUP, "topics": [
        {"name": "audit-offsets", "partitions": [{"partition_index": 0}]},
        {"name": "audit-data", "partitions": [{"partition_index": 0}]}]}),
    Case("consumer group with members", "delete_groups", {"groups_names": [GROUP]}),
    Case("second member", "consumer_group_heartbeat", joining("m2"), ONLY_1),
    Case("second member waits", "consumer_group_heartbeat", owning("m2", 3), ONLY_1),
    Case("while it moves", "consumer_group_describe", describe(GROUP)),
    Case("gives up", "consumer_group_heartbeat", owning("m1", 2, 0, 1, 2), ONLY_1),
    Case("has given up", "consumer_group_heartbeat", owning("m1", 2, 0, 1), ONLY_1),
    Case("gets its part", "consumer_group_heartbeat", owning("m2", 3), ONLY_1),
    Case("owns it", "consumer_group_heartbeat", owning("m2", 3, 2), ONLY_1),
    Case("commits with the epoch of its assignment", "offset_commit", commit("m1", 2), range(9, 11)),
    Case("two members", "consumer_group_describe", describe(GROUP)),
    Case("wants range", "consumer_group_heartbeat", heartbeat("m2", 3, server_assignor="range"), ONLY_1),
    Case("two members, one assignor", "consumer_group_describe", describe(GROUP)),
    Case("leaves", "consumer_group_heartbeat", heartbeat("m2", -1), ONLY_1),
    Case("has left", "consumer_group_heartbeat", heartbeat("m2", 3), ONLY_1),
    Case("last leaves", "consumer_group_heartbeat", heartbeat("m1", -1), ONLY_1),
    Case("empty", "consumer_group_describe", describe(GROUP)),
    Case("no member of an empty consumer group", "offset_commit", commit("", -1), range(9, 11)),
    Case("static", "consumer_group_heartbeat", joining("s1", group="modern-static", instance_id="i"), ONLY_1),
    Case("instance in use", "consumer_group_heartbeat", joining("s2", group="modern-static", instance_id="i"), ONLY_1),
    Case("instance of another", "consumer_group_heartbeat", heartbeat("s2", 2, group="modern-static", instance_id="i"), ONLY_1),
    Case("static member goes away", "consumer_group_heartbeat", heartbeat("s1", -2, group="modern-static", instance_id="i"), ONLY_1),
    Case("without its static member", "consumer_group_describe", describe("modern-static")),
    Case("static member is back", "consumer_group_heartbeat", joining("s2", group="modern-static", instance_id="i"), ONLY_1),
    Case("old static member", "consumer_group_heartbeat", heartbeat("s1", 2, group="modern-static", instance_id="i"), ONLY_1),
    Case("static member", "consumer_group_describe", describe("modern-static")),
    Case("static member leaves", "consumer_group_heartbeat", heartbeat("s2", -1, group="modern-static", instance_id="i"), ONLY_1),
    Case("consumer groups", "delete_groups", {"groups_names": [GROUP, "modern-static"]}),
]  # fmt: skip
