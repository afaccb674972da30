"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071), and older APIs on such groups."""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from typing import Any

from wire_cases import create, topic
from wire_exchange import Body, Case

ONLY_1 = range(1, 2)
GROUP = "streaming"
SLOW_GROUP = "streaming-later"
STATIC_GROUP = "streaming-static"
TOPIC = "audit-streams"
GROUP_CONFIG = 32


def heartbeat(epoch: int, member: str = "m1", group: str = GROUP, **more: Any) -> Body:
    return {"group_id": group, "member_id": member, "member_epoch": epoch, **more}


def subtopology(name: str, *sources: str, log: str = "", reads: str = "", writes: str = "") -> Body:
    def infos(named: str) -> list[Body]:
        return [{"name": named}] if named else []

    return {
        "subtopology_id": name,
        "source_topics": list(sources),
        "state_changelog_topics": infos(log),
        "repartition_sink_topics": [writes] if writes else [],
        "repartition_source_topics": infos(reads),
    }


COUNTING = [
    subtopology("0", TOPIC, writes="audit-streams-again"),
    subtopology("1", log="audit-streams-log", reads="audit-streams-again"),
]
STATELESS = [subtopology("0", TOPIC)]


def joining(
    member: str = "m1",
    group: str = GROUP,
    subtopologies: list[Body] | None = None,
    topology_epoch: int = 0,
    **more: Any,
) -> Body:
    fields: Body = {
        "topology": {"epoch": topology_epoch, "subtopologies": subtopologies or COUNTING},
        "rebalance_timeout_ms": 60_000,
        "process_id": f"process-{member}",
        "client_tags": [],
        **no_tasks(),
    }
    return heartbeat(0, member, group, **{**fields, **more})


def no_tasks() -> Body:
    return {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def owning(epoch: int, member: str = "m1", group: str = GROUP, **active: list[int]) -> Body:
    tasks = [{"subtopology_id": name[1:], "partitions": part} for name, part in active.items()]
    return heartbeat(epoch, member, group, **{**no_tasks(), "active_tasks": tasks})


def has_tasks(answer: Any) -> bool:
    return bool(answer.active_tasks)


def commit(member: str, epoch: int, group: str = GROUP) -> Body:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    return {
        "group_id": group,
        "member_id": member,
        "generation_id_or_member_epoch": epoch,
        "topics": [{"name": TOPIC, "partitions": [part]}],
    }


def at_once(group: str) -> Body:
    config = {"name": "streams.initial.rebalance.delay.ms", "config_operation": 0, "value": "0"}
    return {"resource_type": GROUP_CONFIG, "resource_name": group, "configs": [config]}


def described(*groups: str) -> Body:
    return {"group_ids": list(groups), "include_authorized_operations": True}


CASES = [
    Case("own topic", "create_topics", create(topic(TOPIC, 2)), range(7, 8), settle_s=0.5),
    Case("groups that begin at once", "incremental_alter_configs", {"validate_only": False, "resources": [at_once(GROUP), at_once(STATIC_GROUP)]}, ONLY_1, settle_s=0.5),
    Case("coordinator", "find_coordinator", {"key": GROUP, "key_type": 0}, ONLY_1, patient=True),

    Case("no member id", "streams_group_heartbeat", joining("")),
    Case("no group id", "streams_group_heartbeat", joining(group="")),
    Case("empty instance id", "streams_group_heartbeat", joining(instance_id="")),
    Case("empty rack", "streams_group_heartbeat", joining(rack_id="")),
    Case("epoch -3", "streams_group_heartbeat", heartbeat(-3)),
    Case("epoch -2 without an instance id", "streams_group_heartbeat", heartbeat(-2)),
    Case("no rebalance timeout", "streams_group_heartbeat", joining(rebalance_timeout_ms=-1)),
    Case("no topology", "streams_group_heartbeat", joining(topology=None)),
    Case("joins with tasks", "streams_group_heartbeat", joining(active_tasks=[{"subtopology_id": "0", "partitions": [0]}])),
    Case("a kind of tasks is missing", "streams_group_heartbeat", heartbeat(1, active_tasks=[])),
    Case("topology when not joining", "streams_group_heartbeat", heartbeat(1, topology={"epoch": 0, "subtopologies": STATELESS})),
    Case("internal topic", "streams_group_heartbeat", joining(subtopologies=[subtopology("0", "__consumer_offsets")])),
    Case("bad topic name", "streams_group_heartbeat", joining(subtopologies=[subtopology("0", "a b")])),
    Case("changelog with partitions", "streams_group_heartbeat", joining(subtopologies=[{**subtopology("0", TOPIC), "state_changelog_topics": [{"name": "audit-l", "partitions": 3}]}])),
    Case("regular expression", "streams_group_heartbeat", joining(subtopologies=[{**subtopology("0", TOPIC), "source_topic_regex": ["a.*"]}])),
    Case("unknown group", "streams_group_heartbeat", heartbeat(1, group="no-streams-group")),
    Case("leaves an unknown group", "streams_group_heartbeat", heartbeat(-1, group="no-streams-group")),
    Case("unknown group", "streams_group_describe", described("no-streams-group")),

    Case("first assignment later", "streams_group_heartbeat", joining(group=SLOW_GROUP, subtopologies=STATELESS, topology_epoch=1), ONLY_1),
    Case("older topology", "streams_group_heartbeat", joining("m2", SLOW_GROUP, STATELESS), ONLY_1),
    Case("waits", "streams_group_describe", described(SLOW_GROUP)),
    Case("source topic is missing", "streams_group_heartbeat", joining(group="streaming-nothing", subtopologies=[subtopology("0", "audit-missing")]), ONLY_1),
    Case("not ready", "streams_group_describe", described("streaming-nothing"), ONLY_1),

    Case("joins", "streams_group_heartbeat", joining(user_endpoint={"host": "h", "port": 9}), ONLY_1, pause_s=2.0),
    Case("topics exist", "streams_group_heartbeat", owning(2), ONLY_1, until=has_tasks, pause_s=1.5),
    Case("no news", "streams_group_heartbeat", owning(3, s0=[0, 1], s1=[0, 1]), ONLY_1),
    Case("joins again", "streams_group_heartbeat", joining(), ONLY_1),
    Case("epoch too high", "streams_group_heartbeat", owning(99)),
    Case("epoch too low", "streams_group_heartbeat", owning(1, s0=[0])),
    Case("unknown member", "streams_group_heartbeat", owning(3, "m9")),
    Case("unknown subtopology", "streams_group_heartbeat", owning(3, s7=[0])),
    Case("unknown task", "streams_group_heartbeat", owning(3, s0=[9])),
    Case("other topology", "streams_group_heartbeat", joining("m2", subtopologies=STATELESS)),
    Case("with a member", "streams_group_describe", described(GROUP)),
    Case("streams groups", "list_groups", {"states_filter": [], "types_filter": ["streams"]}, range(5, 6)),
    Case("not ready", "list_groups", {"states_filter": ["not_ready"], "types_filter": ["streams"]}, range(5, 6)),
    Case("a streams group", "consumer_group_describe", {"group_ids": [GROUP]}),
    Case("a streams group", "share_group_describe", {"group_ids": [GROUP]}),
    Case("a streams group", "describe_groups", {"groups": [GROUP]}, range(6, 7)),
    Case("a consumer group", "streams_group_describe", described("modern")),
    Case("without a member id", "offset_commit", commit("", -1), range(9, 10)),
    Case("unknown member", "offset_commit", commit("m9", 3), range(9, 10)),
    Case("epoch of the future", "offset_commit", commit("m1", 99), range(9, 10)),
    Case("too old a version", "offset_commit", commit("m1", 3), range(8, 9)),
    Case("with a member", "delete_groups", {"groups_names": [GROUP]}, range(2, 3), pause_s=1.5),
    Case("leaves", "streams_group_heartbeat", heartbeat(-1), ONLY_1),
    Case("leaves again", "streams_group_heartbeat", heartbeat(-1)),
    Case("is empty", "streams_group_describe", described(GROUP)),
    Case("of an empty streams group", "offset_commit", commit("", -1), range(9, 10)),
    Case("streams group", "delete_groups", {"groups_names": [GROUP]}, range(2, 3)),
    Case("gone", "streams_group_describe", described(GROUP)),

    Case("static member joins", "streams_group_heartbeat", joining("s1", STATIC_GROUP, STATELESS, instance_id="one"), ONLY_1),
    Case("instance is taken", "streams_group_heartbeat", joining("s2", STATIC_GROUP, STATELESS, instance_id="one"), ONLY_1),
    Case("unknown instance", "streams_group_heartbeat", {**owning(2, "s1", STATIC_GROUP), "instance_id": "two"}),
    Case("static member goes away", "streams_group_heartbeat", heartbeat(-2, "s1", STATIC_GROUP, instance_id="one"), ONLY_1),
    Case("away", "streams_group_describe", described(STATIC_GROUP)),
    Case("static member returns", "streams_group_heartbeat", joining("s3", STATIC_GROUP, STATELESS, instance_id="one"), ONLY_1, pause_s=1.5),
    Case("old static member", "streams_group_heartbeat", {**owning(2, "s1", STATIC_GROUP), "instance_id": "one"}),
    Case("returned", "streams_group_describe", described(STATIC_GROUP)),
]  # fmt: skip
