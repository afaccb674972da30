"""The same bytes are sent to Kafka and to Spindle, and every answer is compared field by field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import wire_cases
import wire_cases_consumer_groups
import wire_cases_share_groups
import wire_cases_streams_groups
import wire_cases_transactional_data
import wire_cases_transactions
from peers.compare import Difference, Pair
from wire_exchange import KEYS, Case, Wire, differences, play

from spindle.protocol.api import APIS

# The interval of one consumer group is longer than the test.
NODE_OVERRIDES = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.consumer.max.assignment.interval.ms": str(wire_cases_consumer_groups.FAR_AWAY_MS),
}

CHAPTERS: dict[str, list[Case]] = {
    **wire_cases.CHAPTERS,
    "consumer groups": wire_cases_consumer_groups.CASES,
    "share groups": wire_cases_share_groups.CASES,
    "streams groups": wire_cases_streams_groups.CASES,
    # Records first: offsets by time find them, and not a marker, whose time differs.
    **wire_cases_transactional_data.CHAPTERS,
    **wire_cases_transactions.CHAPTERS,
}

# Intended differences: (pattern of the line, reason).
DELIBERATE: list[tuple[str, str]] = [
    (
        r"^(add_partitions_to_txn|alter_client_quotas|api_versions|consumer_group_describe|consumer_group_heartbeat|create_partitions"
        r"|create_topics|delete_groups"
        r"|delete_topics|describe_acls|describe_client_quotas|describe_configs|describe_producers"
        r"|describe_transactions|elect_leaders"
        r"|list_config_resources|list_groups|list_offsets|list_transactions|metadata"
        r"|offset_fetch|streams_group_(describe|heartbeat)|write_txn_markers) / .*: order ",
        "Kafka's order is that of a hash",
    ),
    (r"^api_versions / .*api_keys: 77 -> ", "differences.md: APIs that are not served"),
    (
        r"^init_producer_id / producer id|^find_coordinator / group coordinator",
        "Spindle waits until it can answer; Kafka has the client ask again",
    ),
    (r"^init_producer_id / .*producer_id: 0 -> ", "follows from the one before"),
    (
        r"^describe_share_group_offsets / named: '<no answer>'",
        "Kafka does not answer if a partition does not exist",
    ),
    (r"^(fetch|list_offsets) / isolation 2", "Kafka fails with UNKNOWN_SERVER_ERROR"),
    (
        r"^metadata / null name and no id|^describe_topic_partitions / 14"
        r"|^incremental_alter_configs / .* 9 5\.|^create_partitions / too many"
        r"|^produce / codec 5|^alter_user_scram_credentials / 9\.",
        "Kafka fails with UNKNOWN_SERVER_ERROR; Spindle says what is wrong",
    ),
    (
        r"^join_group / classic member, (empty|unreadable) subscription",
        "Kafka fails with UNKNOWN_SERVER_ERROR; Spindle says what is wrong",
    ),
    (
        r"^create_topics / counts.*Excessively large"
        r"|^alter_user_scram_credentials / [56]\.results\[t\]\.error_message: 'Too "
        r"|^incremental_alter_configs / .* 9 5\..*error_message"
        r"|^(incremental_)?alter_configs / 4 '1': listeners .*error_message"
        r"|^describe_user_scram_credentials / .*twice"
        r"|^describe_client_quotas / .*\.error_message: '[^']"
        r"|^alter_client_quotas / .*'ip'.*error_message: 'Invalid quota entity combination"
        r"|^alter_client_quotas / key twice.*error_message"
        r"|^produce / far future.*batch_index_error_message"
        r"|^(describe_configs|find_coordinator) / .*error_message: 'This most likely occurs"
        r"|^find_coordinator / 'bad key' type 2.*error_message: ''"
        r"|^add_raft_voter / .*error_message|^consumer_group_heartbeat / bad regex.*error_message"
        r"|^share_(group_heartbeat|fetch|acknowledge) / .*error_message: (None|'MemberEpoch is inv)"
        r"|^(alter|delete)_share_group_offsets / with a member.*error_message",
        "the error is the same, its text is more exact",
    ),
    (
        r"^incremental_alter_configs / 4 '1?': (retention.ms|cleanup.policy) [23] .*error_message"
        r": 'Unknown config name",
        "of two errors Spindle names the other",
    ),
    (
        r"^alter_client_quotas / (user twice|not a number)",
        "Kafka stores a quota that is not a number, and takes the second of two users",
    ),
    (r"^describe_configs / logger.*documentation: '' -> None", "loggers have no documentation"),
    (r"^describe_groups / all\.groups: 5 -> 4", "a group that is named twice is told once"),
    (
        r"^describe_log_dirs / one topic.*topics: (1 -> 0|0 -> 1)",
        "directories of equal count are chosen by chance",
    ),
    (r"^describe_quorum / metadata.*high_watermark", "the logs of two clusters"),
    (
        r"^produce / (sequence again|repeated|plain batch of another|older client)"
        r".*log_append_time_ms",
        "a repeated batch is answered without a time; clients do not read it",
    ),
    (
        r"^produce / older client, .*'Partition was not added to the transaction'",
        "the error is the same, its text is worded differently",
    ),
    (
        r"^add_partitions_to_txn / same twice",
        "a partition that is named twice is told once",
    ),
    (
        r"^streams_group_heartbeat / .*'Internal topics are missing: ",
        "Kafka's order is that of a hash",
    ),
    (
        r"^write_txn_markers / older epoch.*error_code: -1 -> 47",
        "Kafka fails with UNKNOWN_SERVER_ERROR at a negative epoch",
    ),
    (
        r"^produce / magic 3.*(error_code: 2 -> 87|error_message: 'Invalid magic)",
        "INVALID_RECORD for every unknown format",
    ),
]


@pytest.fixture(scope="module")
def versions(module_pair: Pair) -> dict[str, range]:
    """Create the topics of SETUP; return the versions that both advertise, by API name."""
    by_node: list[dict[int, tuple[int, int]]] = []
    for node in (module_pair.reference, module_pair.candidate):
        wire = Wire(node)
        answer = wire.ask("api_versions", 0, {})
        wire.close()
        by_node.append({one.api_key: (one.min_version, one.max_version) for one in answer.api_keys})
    both = {
        name: range(
            max(by_node[0][key][0], by_node[1][key][0]),
            min(by_node[0][key][1], by_node[1][key][1]) + 1,
        )
        for name, key in KEYS.items()
        if key in by_node[0] and key in by_node[1]
    }
    assert all(len(both[name]) for name in both)
    lines = compare(module_pair, wire_cases.SETUP, both)
    assert lines == [], "\n".join(lines)
    return both


def compare(pair: Pair, cases: list[Case], versions: dict[str, range]) -> list[str]:
    """Return the differences that no reason explains."""
    expected = play(pair.reference, cases, versions)
    actual = play(pair.candidate, cases, versions)
    versions_by_line: dict[str, list[str]] = {}
    for name in expected:
        title, _, version = name.rpartition(" ")
        for line in dict.fromkeys(differences(title, expected[name], actual[name])):
            if not any(re.search(pattern, line) for pattern, _ in DELIBERATE):
                versions_by_line.setdefault(line, []).append(version)
    return [f"{line}  [{' '.join(at)}]" for line, at in versions_by_line.items()]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_answers_are_equal(pair: Pair, versions: dict[str, range], chapter: str) -> None:
    lines = compare(pair, CHAPTERS[chapter], versions)
    if lines and pair.differences is not None:
        pair.differences.mkdir(parents=True, exist_ok=True)
        (Path(pair.differences) / f"wire-{chapter}.txt").write_text("\n".join(lines) + "\n")
    if lines:
        raise Difference(f"{len(lines)} differences, kafka -> candidate:\n" + "\n".join(lines))


def test_every_advertised_api_is_asked(versions: dict[str, range]) -> None:
    asked = {case.api for cases in CHAPTERS.values() for case in cases}
    assert {APIS[KEYS[name]].name for name in versions} - asked == set()
