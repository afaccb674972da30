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


def assigns_every(interval_ms: int, *groups: str) -> Body:
    name = "consumer.assignment.interval.ms"
    value = {"name": name, "config_operation": 0, "value": str(interval_ms)}
    return {"validate_only": False, "resources": [
        {"resource_type": GROUP_CONFIG, "resource_name": group, "configs": [value]}
        for group in groups]}  # fmt: skip


def slow(member: str, epoch: int, owned: dict[str, list[int]], **more: Any) -> Any:
    """Return a heartbeat of a member of the group whose next assignment is far away."""

    def body(state: State) -> Body:
        topics = [{"topic_id": state.topic_ids[name], "partitions": p} for name, p in owned.items()]
        return heartbeat(member, epoch, SLOW, topic_partitions=topics, **more)

    return body


def slow_classic(api: str, **more: Any) -> Case:
    body = {"group_id": SLOW, **more}
    return Case("classic member that waits", api, body, CLASSIC_VERSIONS[api])


SLOW = "modern-slow"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x0daudit-offsets\xff\xff\xff\xff"
CLASSIC_VERSIONS = {"sync_group": range(5, 6), "heartbeat": range(4, 5), "leave_group": range(5, 6)}
BOTH = ["audit-offsets", "audit-data"]
FAR_AWAY_MS = 600_000
BETWEEN_ASSIGNMENTS = [
    Case("assigns later", "incremental_alter_configs", assigns_every(FAR_AWAY_MS, SLOW), ONLY_1, settle_s=0.5),
    Case("first of the slow", "consumer_group_heartbeat", joining("m1", SLOW, subscribed_topic_names=BOTH), ONLY_1),
    Case("second of the slow", "consumer_group_heartbeat", joining("m2", SLOW), ONLY_1),
    Case("has to wait", "consumer_group_heartbeat", slow("m2", 2, {}), ONLY_1),
    Case("nothing to give up yet", "consumer_group_heartbeat", heartbeat("m1", 2, SLOW), ONLY_1),
    Case("slow group", "consumer_group_describe", describe(SLOW)),
    Case("assigning", "list_groups", {"states_filter": ["Assigning"], "types_filter": []}),
    Case("leaves a topic", "consumer_group_heartbeat", slow("m1", 2, {"audit-offsets": [0, 1, 2], "audit-data": [0]}, subscribed_topic_names=["audit-offsets"]), ONLY_1),
    Case("has not given it up", "consumer_group_describe", describe(SLOW)),
    Case("wants it back", "consumer_group_heartbeat", slow("m1", 2, {"audit-offsets": [0, 1, 2], "audit-data": [0]}, subscribed_topic_names=BOTH), ONLY_1),
    Case("leaves it again", "consumer_group_heartbeat", slow("m1", 2, {"audit-offsets": [0, 1, 2], "audit-data": [0]}, subscribed_topic_names=["audit-offsets"]), ONLY_1),
    Case("has given it up", "consumer_group_heartbeat", slow("m1", 2, {"audit-offsets": [0, 1, 2]}), ONLY_1),
    Case("slow group without a topic", "consumer_group_describe", describe(SLOW)),
    Case("leaves all at once", "consumer_group_heartbeat", slow("m1", 2, {}, subscribed_topic_names=[]), ONLY_1),
    Case("slow group without topics", "consumer_group_describe", describe(SLOW)),
    Case("classic member of the slow", "join_group", {**classic(SUBSCRIPTION), "group_id": SLOW}, range(9, 10)),
    slow_classic("sync_group", member_id="c1", generation_id=2, protocol_type="consumer", protocol_name="range", assignments=[]),
    slow_classic("heartbeat", member_id="c1", generation_id=2),
    slow_classic("leave_group", members=[{"member_id": "c1", "group_instance_id": None, "reason": None}]),
    Case("static one of the slow", "consumer_group_heartbeat", joining("s1", SLOW, instance_id="i"), ONLY_1),
    Case("static one goes away", "consumer_group_heartbeat", heartbeat("s1", -2, SLOW, instance_id="i"), ONLY_1),
    Case("static one is back", "consumer_group_heartbeat", joining("s2", SLOW, instance_id="i"), ONLY_1),
    Case("slow group with a static one", "consumer_group_describe", describe(SLOW)),
    Case("assigns now", "incremental_alter_configs", assigns_every(0, SLOW), ONLY_1, settle_s=0.5),
    Case("gets its assignment", "consumer_group_heartbeat", slow("m2", 2, {}), ONLY_1),
    Case("static one gets its assignment", "consumer_group_heartbeat", slow("s2", 2, {}, instance_id="i"), ONLY_1),
    Case("static one goes away again", "consumer_group_heartbeat", heartbeat("s2", -2, SLOW, instance_id="i"), ONLY_1),
    Case("static one is back again", "consumer_group_heartbeat", joining("s3", SLOW, instance_id="i"), ONLY_1),
    Case("static one commits for an old epoch", "offset_commit", commit("s3", 1, group=SLOW), range(9, 11)),
    Case("slow group no more", "consumer_group_describe", describe(SLOW)),
    Case("m1 of the slow leaves", "consumer_group_heartbeat", heartbeat("m1", -1, SLOW), ONLY_1),
    Case("m2 of the slow leaves", "consumer_group_heartbeat", heartbeat("m2", -1, SLOW), ONLY_1),
    Case("s3 of the slow leaves", "consumer_group_heartbeat", heartbeat("s3", -1, SLOW, instance_id="i"), ONLY_1),
    Case("slow group", "delete_groups", {"groups_names": [SLOW]}),
]  # fmt: skip

CASES = [
    Case("assigns at once", "incremental_alter_configs", assigns_every(0, GROUP, "modern-static"), ONLY_1, settle_s=0.5),
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
    *BETWEEN_ASSIGNMENTS,
]  # fmt: skip
