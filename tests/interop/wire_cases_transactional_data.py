"""Records and offsets in transactions: the requests to the leaders of partitions and of groups."""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wire_cases import OTHER_ID, batch
from wire_cases_transactions import (
    ABORT,
    COMMIT,
    TWO,
    add,
    add_offsets,
    completed,
    describe,
    end,
    identity,
    init,
    only,
    topics,
)
from wire_exchange import Body, Case, State, is_settled

DATA, OFFSETS = "audit-data", "audit-offsets"


def produce(transactional_id: str | None, title: str, sequence: int, versions: range, *, topic: str = TWO, index: int = 0,
            of: str = "", epoch: int = 0, producer: int = 0, is_transactional: bool = True, count: int = 1) -> Case:  # fmt: skip
    """A batch of the producer of `of`, by default that of the transactional id itself."""

    def body(state: State) -> Body:
        ids = identity(state, of or transactional_id or "", epoch=epoch, producer=producer)
        records = (
            batch(b"v", base_sequence=sequence, is_transactional=is_transactional, **ids) * count
        )
        return {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 5_000,
            "topic_data": [{
                "name": topic,
                "topic_id": state.topic_ids.get(topic, OTHER_ID),
                "partition_data": [{"index": index, "records": records}],
            }],
        }  # fmt: skip

    return Case(f"{title} ({transactional_id or of})", "produce", body, versions, until=is_settled)


def commit_offsets(transactional_id: str, title: str, group: str, *rows: tuple[str, int, int], versions: range | None = None,
                   epoch: int = 0, producer: int = 0, metadata: str | None = "", **more: Any) -> Case:  # fmt: skip
    def body(state: State) -> Body:
        by_topic: dict[str, list[Body]] = {}
        for name, index, offset in rows:
            by_topic.setdefault(name, []).append(
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_metadata": metadata,
                }
            )
        return {
            "transactional_id": transactional_id,
            "group_id": group,
            **identity(state, transactional_id, epoch=epoch, producer=producer),
            "topics": [
                {"name": name, "topic_id": state.topic_ids.get(name, OTHER_ID), "partitions": parts}
                for name, parts in by_topic.items()
            ],
            **more,
        }  # fmt: skip

    return Case(
        f"{title} ({transactional_id})", "txn_offset_commit", body, versions, until=is_settled
    )


def offsets(title: str, group: str, *, is_stable: bool) -> Case:
    body = {"group_id": group, "topics": [{"name": OFFSETS, "partition_indexes": [0, 1]}], "require_stable": is_stable,
            "groups": [{"group_id": group, "topics": [{"name": OFFSETS, "partition_indexes": [0, 1]}]}]}  # fmt: skip
    return Case(title, "offset_fetch", body, range(7, 10), until=is_settled)


def marker(title: str, of: str, committed: bool, *places: tuple[str, int], versions: range | None = None,
           epoch: int = 0, producer: int = 0, coordinator_epoch: int = 0, version: int = 0, twice: bool = False) -> Case:  # fmt: skip
    def body(state: State) -> Body:
        ids = identity(state, of, epoch=epoch, producer=producer)
        one = {**ids, "transaction_result": committed, "coordinator_epoch": coordinator_epoch, "transaction_version": version,
               "topics": [{"name": t["name"], "partition_indexes": t["partitions"]} for t in topics(*places)]}  # fmt: skip
        return {"markers": [one, one] if twice else [one]}

    return Case(f"{title} ({of})", "write_txn_markers", body, versions)


def producers(title: str, *places: tuple[str, int]) -> Case:
    named = [{"name": t["name"], "partition_indexes": t["partitions"]} for t in topics(*places)]
    return Case(title, "describe_producers", {"topics": named})


def fetched(title: str, topic: str, index: int, isolation: int) -> Case:
    def body(state: State) -> Body:
        part = {"partition": index, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
                "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
        return {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": isolation,
                "session_id": 0, "session_epoch": -1,
                "topics": [{"topic": topic, "topic_id": state.topic_ids.get(topic, OTHER_ID), "partitions": [part]}]}  # fmt: skip

    return Case(title, "fetch", body, only(12))


def ends(
    title: str, *, isolation: int, timestamp: int = -1, indexes: tuple[int, ...] = (0, 1)
) -> Case:
    parts = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index in indexes
    ]
    body: Body = {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": TWO, "partitions": parts}],
    }
    return Case(title, "list_offsets", body, range(4, 10))


def whole_transactions() -> Iterator[Case]:
    """One committed and one aborted transaction in every pair of versions that clients used."""
    flows = (
        ("a", 0, 0, 0, 0, 9),
        ("b", 1, 1, 1, 1, 9),
        ("c", 2, 2, 2, 2, 9),
        ("d", 3, 3, 3, 3, 10),
        ("e", 4, 3, 3, 4, 11),
    )
    for letter, of_init, of_add, of_offsets, of_end, of_produce in flows:
        name = f"flow-{letter}"
        yield init(name, "first", only(of_init))
        for sequence, outcome in ((0, COMMIT), (1, ABORT)):
            yield add(name, f"{outcome}: partitions", (TWO, 0), (TWO, 1), versions=only(of_add))
            yield produce(name, f"{outcome}: batch", sequence, only(of_produce))
            yield add_offsets(name, f"{outcome}: offsets", f"group-{letter}", only(of_offsets))
            yield commit_offsets(
                name,
                f"{outcome}: offsets",
                f"group-{letter}",
                (OFFSETS, 0, 5 + sequence),
                versions=only(of_offsets),
            )
            yield describe(f"{name} ongoing {outcome}", name)
            yield end(name, f"{outcome}: end", outcome, only(of_end))
            yield completed(name, "CompleteCommit" if outcome else "CompleteAbort")
            yield end(name, f"{outcome}: end repeated", outcome, only(of_end))
            yield end(name, f"{outcome}: ended otherwise", not outcome, only(of_end))
            yield offsets(f"of {name} after {outcome}", f"group-{letter}", is_stable=True)
    name = "flow-f"  # epoch bump for each transaction
    yield init(name, "first", only(5))
    for outcome in (COMMIT, ABORT):
        yield produce(name, f"{outcome}: batch", 0, only(12), index=1)
        yield commit_offsets(
            name, f"{outcome}: offsets", "group-f", (OFFSETS, 1, 9), versions=only(5)
        )
        yield describe(f"{name} ongoing {outcome}", name)
        yield end(name, f"{outcome}: end", outcome, only(5))
        yield completed(name, "CompleteCommit" if outcome else "CompleteAbort")
        yield end(name, f"{outcome}: repeated with the old epoch", outcome, only(5), epoch=-1)
        yield completed(name, "CompleteCommit" if outcome else "CompleteAbort")
        yield end(name, f"{outcome}: with the old epoch, otherwise", not outcome, only(5), epoch=-1)
        yield produce(name, f"{outcome}: batch with the old epoch", 1, only(12), index=1, epoch=-1)
        yield offsets(f"of {name} after {outcome}", "group-f", is_stable=True)
    yield end(name, "no transaction, abort", ABORT, only(5))
    yield end(name, "no transaction, commit", COMMIT, only(5))


PRODUCE = [
    init("out", "first", only(5)),
    produce("out", "older client, not in the transaction", 0, range(9, 12)),
    produce("none", "unknown id", 0, range(9, 14), of="out"),
    produce(None, "no transactional id", 0, range(9, 13), of="out"),
    produce("", "empty transactional id", 0, range(9, 13), of="out"),
    produce("out", "plain batch of another producer", 0, range(9, 13), producer=7000, is_transactional=False),
    produce("out", "other producer", 0, only(12), producer=5000),
    produce("out", "unknown partition", 0, only(12), index=9),
    produce("out", "newer epoch", 0, only(12), epoch=1),
    produce("out", "older epoch", 0, only(12), epoch=-1),
    describe("after refused batches", "out"),
    produce("out", "does not begin with 0", 3, only(12)),
    produce("out", "begins", 0, only(12)),
    describe("after batches", "out"),
    producers("of a transaction", (TWO, 0), (TWO, 1)),
    ends("all", isolation=0),
    ends("stable", isolation=1),
    ends("stable, by time", isolation=1, timestamp=0, indexes=(0,)),
    fetched("open, read_committed", TWO, 0, 1),
    produce("out", "gap", 9, only(12)),
    produce("out", "repeated", 0, only(12)),
    produce("out", "two batches", 2, only(12), count=2),
    produce("out", "plain batch within", 1, only(12), is_transactional=False),
    produce(None, "plain batch of the same producer, without id", 1, only(12), of="out", is_transactional=False),
    end("out", "abort", ABORT, only(5)),
    completed("out", "CompleteAbort"),
    producers("after an abort", (TWO, 0)),
    fetched("aborted, read_committed", TWO, 0, 1),
    fetched("aborted, read_uncommitted", TWO, 0, 0),
    ends("after an abort", isolation=1),
    produce("out", "former epoch", 1, range(9, 13), epoch=-1),
    produce("out", "the next transaction begins with 1", 1, only(12)),
    produce("out", "the next transaction", 0, only(12)),
    end("out", "commit", COMMIT, only(5)),
    completed("out", "CompleteCommit"),
    fetched("committed, read_committed", TWO, 0, 1),
    producers("after a commit", (TWO, 0)),
    init("out-old", "first", only(4)),
    produce("out-old", "older client, new transaction", 0, range(9, 12)),
    add("out-old", "two", (TWO, 0), (TWO, 1), versions=only(3)),
    produce("out-old", "older client", 0, range(9, 12)),
    produce("out-old", "newer request", 1, only(12)),
    init("out-old", "restarted", only(4)),
    completed("out-old", "Empty"),
    produce("out-old", "the former producer", 2, range(9, 13), epoch=-2),
]  # fmt: skip

GROUP = "txn-offsets"
OFFSET_COMMITS = [
    init("offs", "first", only(5)),
    commit_offsets("none", "unknown id", GROUP, (OFFSETS, 0, 1)),
    commit_offsets("offs", "not in the transaction", GROUP, (OFFSETS, 0, 1), versions=range(5)),
    commit_offsets("offs", "older epoch", GROUP, (OFFSETS, 0, 1), epoch=-1),
    commit_offsets("offs", "newer epoch", GROUP, (OFFSETS, 0, 1), epoch=1, versions=only(5)),
    commit_offsets("offs", "other producer", GROUP, (OFFSETS, 0, 1), producer=1),
    commit_offsets("offs", "empty group", "", (OFFSETS, 0, 1), versions=range(5)),
    commit_offsets("offs", "generation of no group", GROUP, (OFFSETS, 0, 1), generation_id_or_member_epoch=4),
    commit_offsets("offs", "member of no group", GROUP, (OFFSETS, 0, 1), generation_id_or_member_epoch=4, member_id="m"),
    commit_offsets("offs", "instance of no group", GROUP, (OFFSETS, 0, 1), group_instance_id="i"),
    add_offsets("offs", "offsets", GROUP, only(4)),
    commit_offsets("offs", "unknown topic and partition", GROUP, ("audit-none", 0, 1), (OFFSETS, 9, 1), (OFFSETS, 0, 4)),
    commit_offsets("offs", "negative offset", GROUP, (OFFSETS, 1, -1)),
    commit_offsets("offs", "long metadata", GROUP, (OFFSETS, 0, 2), metadata="x" * 5000),
    commit_offsets("offs", "null metadata", GROUP, (OFFSETS, 0, 3), metadata=None),
    commit_offsets("offs", "none", GROUP),
    commit_offsets("offs", "two", GROUP, (OFFSETS, 0, 7), (OFFSETS, 1, 8)),
    offsets("pending", GROUP, is_stable=False),
    offsets("pending, stable ones wanted", GROUP, is_stable=True),
    Case("pending offsets", "delete_groups", {"groups_names": [GROUP]}),
    Case("pending offsets", "offset_delete", {"group_id": GROUP, "topics": [{"name": OFFSETS, "partitions": [{"partition_index": 0}]}]}),
    Case("pending offsets", "describe_groups", {"groups": [GROUP]}),
    describe("with offsets", "offs"),
    end("offs", "commit", COMMIT, only(5)),
    completed("offs", "CompleteCommit"),
    offsets("committed", GROUP, is_stable=True),
    commit_offsets("offs", "next transaction", GROUP, (OFFSETS, 0, 17), versions=only(5)),
    end("offs", "abort", ABORT, only(5)),
    completed("offs", "CompleteAbort"),
    offsets("aborted", GROUP, is_stable=True),
    commit_offsets("offs", "former epoch", GROUP, (OFFSETS, 0, 27), epoch=-1),
    commit_offsets("offs", "transaction by topic id", GROUP, (OFFSETS, 0, 37), versions=only(6)),
    end("offs", "commit by topic id", COMMIT, only(5)),
    completed("offs", "CompleteCommit"),
    offsets("committed by topic id", GROUP, is_stable=True),
]  # fmt: skip

MARKERS = [
    Case("none", "write_txn_markers", {"markers": []}),
    init("mark", "first", only(5)),
    marker("no producer there", "mark", COMMIT, ("audit-small", 0), producer=9000),
    marker("unknown topic and partition", "mark", COMMIT, ("audit-none", 0), (DATA, 9), (DATA, -1)),
    marker("no partition", "mark", COMMIT),
    marker("offsets of nobody", "mark", COMMIT, ("__consumer_offsets", 0), producer=9000),
    marker("coordinator's own topic", "mark", COMMIT, ("__transaction_state", 0), producer=9000),
    produce("mark", "begins", 0, only(12), topic=DATA),
    marker("older epoch", "mark", COMMIT, (DATA, 0), epoch=-1),
    marker("same epoch, version 2", "mark", ABORT, (DATA, 0), versions=only(2), version=2),
    marker("older coordinator after a newer one: newer", "mark", ABORT, (DATA, 0), epoch=1, coordinator_epoch=5, version=2),
    marker("older coordinator after a newer one: older", "mark", ABORT, (DATA, 0), epoch=1, coordinator_epoch=4, version=2),
    producers("after markers", (DATA, 0)),
    marker("same again", "mark", ABORT, (DATA, 0), epoch=1, coordinator_epoch=5, version=2, twice=True),
    marker("negative coordinator epoch", "mark", ABORT, (DATA, 0), epoch=2, coordinator_epoch=-1),
    produce("mark", "after the markers of a stranger", 1, only(12), topic=DATA),
    ends("after markers", isolation=1),
    producers("unknown ones", ("audit-none", 0), (TWO, 9), (TWO, -1), ("__transaction_state", 0)),
]  # fmt: skip

CHAPTERS = {
    "transactions: whole ones": list(whole_transactions()),
    "transactions: batches": PRODUCE,
    "transactions: offsets": OFFSET_COMMITS,
    "transactions: markers": MARKERS,
}
