"""Requests to the transaction coordinator: producer ids, partitions, ends, questions.

Most cases follow a transactional id through its states. `identity` puts the producer id and epoch
of the node's own answers into the requests that follow.
"""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wire_exchange import Body, Case, State, is_settled

from spindle.common.errors import ErrorCode

TWO = "audit-two"
COMMIT, ABORT = True, False


def only(version: int) -> range:
    return range(version, version + 1)


def remember(transactional_id: str) -> Callable[[State, Any], None]:
    """Keep the producer id and epoch of an answer, if it has them and no error."""

    def keep(state: State, answer: Any) -> None:
        if getattr(answer, "error_code", -1) == ErrorCode.NONE and answer.producer_id >= 0:
            state.kept[transactional_id] = (answer.producer_id, answer.producer_epoch)

    return keep


def identity(state: State, transactional_id: str, *, epoch: int = 0, producer: int = 0) -> Body:
    """Return producer id and epoch, changed by `producer` and `epoch`."""
    known = state.kept.get(transactional_id, (77, 0))
    return {"producer_id": known[0] + producer, "producer_epoch": known[1] + epoch}


def init(transactional_id: str, title: str, versions: range | None = None, *,
         until: Callable[[Any], bool] | None = is_settled, **more: Any) -> Case:  # fmt: skip
    body: Body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **more}
    return Case(
        f"{title} ({transactional_id})",
        "init_producer_id",
        body,
        versions,
        remember(transactional_id),
        until=until,
    )


def init_again(
    transactional_id: str,
    title: str,
    versions: range,
    *,
    epoch: int = 0,
    producer: int = 0,
    **more: Any,
) -> Case:
    """InitProducerId of a producer that names the id and epoch it had."""

    def body(state: State) -> Body:
        return {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000,
                **identity(state, transactional_id, epoch=epoch, producer=producer), **more}  # fmt: skip

    return Case(
        f"{title} ({transactional_id})",
        "init_producer_id",
        body,
        versions,
        remember(transactional_id),
        until=is_settled,
    )


def topics(*places: tuple[str, int]) -> list[Body]:
    """Return the partitions by topic, in the order of their first places."""
    by_name: dict[str, list[int]] = {}
    for name, index in places:
        by_name.setdefault(name, []).append(index)
    return [{"name": name, "partitions": indexes} for name, indexes in by_name.items()]


def add(transactional_id: str, title: str, *places: tuple[str, int], versions: range | None = None,
        epoch: int = 0, producer: int = 0, verify: bool = False) -> Case:  # fmt: skip
    """AddPartitionsToTxn, in the form of clients and in that of brokers (from version 4)."""

    def body(state: State) -> Body:
        ids = identity(state, transactional_id, epoch=epoch, producer=producer)
        return {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": ids["producer_id"],
            "v3_and_below_producer_epoch": ids["producer_epoch"],
            "v3_and_below_topics": topics(*places),
            "transactions": [{"transactional_id": transactional_id, **ids, "verify_only": verify,
                              "topics": topics(*places)}],
        }  # fmt: skip

    return Case(
        f"{title} ({transactional_id})", "add_partitions_to_txn", body, versions, until=is_settled
    )


def add_offsets(transactional_id: str, title: str, group: str, versions: range | None = None, *,
                epoch: int = 0, producer: int = 0) -> Case:  # fmt: skip
    def body(state: State) -> Body:
        ids = identity(state, transactional_id, epoch=epoch, producer=producer)
        return {"transactional_id": transactional_id, **ids, "group_id": group}

    return Case(
        f"{title} ({transactional_id})", "add_offsets_to_txn", body, versions, until=is_settled
    )


def end(transactional_id: str, title: str, committed: bool, versions: range | None = None, *,
        epoch: int = 0, producer: int = 0) -> Case:  # fmt: skip
    def body(state: State) -> Body:
        ids = identity(state, transactional_id, epoch=epoch, producer=producer)
        return {"transactional_id": transactional_id, **ids, "committed": committed}

    return Case(
        f"{title} ({transactional_id})",
        "end_txn",
        body,
        versions,
        remember(transactional_id),
        until=is_settled,
    )


def describe(title: str, *names: str) -> Case:
    return Case(title, "describe_transactions", {"transactional_ids": list(names)})


def completed(name: str, state_name: str) -> Case:
    """Describe a transaction again and again until it is in a state that it reaches by itself."""
    return Case(f"{name} is {state_name}", "describe_transactions", {"transactional_ids": [name]},
                until=lambda answer: answer.transaction_states[0].transaction_state == state_name)  # fmt: skip


def listed(title: str, versions: range | None = None, **filters: Any) -> Case:
    body: Body = {"state_filters": [], "producer_id_filters": [], **filters}
    return Case(title, "list_transactions", body, versions)


INIT = [
    *(Case(f"{label}", "init_producer_id", {"transactional_id": "init-{v}", "transaction_timeout_ms": 60_000, **body}, until=is_settled)
      for label, body in (
          ("timeout 0", {"transaction_timeout_ms": 0}), ("timeout -1", {"transaction_timeout_ms": -1}),
          ("timeout beyond the limit", {"transaction_timeout_ms": 900_001}), ("timeout at the limit", {"transaction_timeout_ms": 900_000}),
          ("epoch without id", {"producer_epoch": 3}), ("id without epoch", {"producer_id": 3}),
          ("id and epoch that nobody has", {"producer_id": 987_654, "producer_epoch": 3}),
          ("empty", {"transactional_id": ""}), ("long", {"transactional_id": "x" * 30_000}),
          ("with spaces", {"transactional_id": " \u00e9\n"}),
      )),
    init("init-two-phase", "a version that is not released", only(6), enable2_pc=True, keep_prepared_txn=True),
    init("init-bumped", "new"),
    init_again("init-bumped", "with its epoch", range(3, 6)),
    init_again("init-bumped", "with the epoch before, as after a lost answer", range(3, 6), epoch=-1),
    init_again("init-bumped", "with an older epoch", range(3, 6), epoch=-2),
    init_again("init-bumped", "with a newer epoch", range(3, 6), epoch=1),
    init_again("init-bumped", "with another id", range(3, 6), producer=1000),
    describe("states", "init-bumped", "init-6", "init-none", "", "init-bumped"),
]  # fmt: skip

PARTITIONS = [
    add("none", "unknown id", (TWO, 0)),
    add("", "empty id", (TWO, 0)),
    add("none", "unknown id, to verify", (TWO, 0), versions=range(4, 6), verify=True),
    init("parts", "first", only(5)),
    add("parts", "none"),
    add("parts", "older epoch", (TWO, 0), epoch=-1),
    add("parts", "newer epoch", (TWO, 0), epoch=1),
    add("parts", "other producer", (TWO, 0), producer=1),
    add("parts", "unknown partition", (TWO, 0), (TWO, 9)),
    add("parts", "unknown topic", ("audit-none", 0), (TWO, 1)),
    add("parts", "negative partition", (TWO, -1)),
    add("parts", "internal topics", ("__consumer_offsets", 0), ("__transaction_state", 0), ("__cluster_metadata", 0)),
    add("parts", "illegal name", ("a/b", 0)),
    add("parts", "to verify, not there", (TWO, 0), versions=range(4, 6), verify=True),
    add("parts", "one", (TWO, 0)),
    add("parts", "one again", (TWO, 0)),
    add("parts", "same twice", (TWO, 0), (TWO, 0)),
    add("parts", "to verify, there", (TWO, 0), versions=range(4, 6), verify=True),
    add("parts", "to verify, one of two", (TWO, 0), (TWO, 1), versions=range(4, 6), verify=True),
    add("parts", "to verify, older epoch", (TWO, 0), versions=range(4, 6), verify=True, epoch=-1),
    add("parts", "to verify, newer epoch", (TWO, 0), versions=range(4, 6), verify=True, epoch=1),
    add("parts", "to verify, other producer", (TWO, 0), versions=range(4, 6), verify=True, producer=1),
    Case("several transactions", "add_partitions_to_txn", lambda state: {"transactions": [
        {"transactional_id": name, **identity(state, name), "verify_only": verify, "topics": topics((TWO, 1))}
        for name, verify in (("parts", False), ("none", True), ("parts", True))]}, range(4, 6)),
    describe("of partitions", "parts"),
    add_offsets("parts", "offsets", "parts-group"),
    add_offsets("parts", "empty group", ""),
    add_offsets("parts", "older epoch", "parts-group", epoch=-1),
    add_offsets("parts", "newer epoch", "parts-group", epoch=1),
    add_offsets("parts", "other producer", "parts-group", producer=1),
    add_offsets("none", "unknown id", "parts-group"),
    add_offsets("", "empty id", "parts-group"),
    describe("of partitions and offsets", "parts"),
    *(end(name, f"{title}, {committed}", committed, None, **ids)
      for title, name, ids in (("unknown id", "none", {}), ("empty id", "", {}), ("older epoch", "parts", {"epoch": -1}),
                               ("newer epoch", "parts", {"epoch": 1}), ("other producer", "parts", {"producer": 1}))
      for committed in (COMMIT, ABORT)),
    end("parts", "abort", ABORT, only(4)),
    completed("parts", "CompleteAbort"),
    describe("aborted", "parts"),
    init("parts-none", "first", only(4)),
    end("parts-none", "nothing to commit", COMMIT, range(5)),
    end("parts-none", "nothing to abort", ABORT, range(5)),
    init("parts-bump", "first", only(5)),
    end("parts-bump", "nothing to commit", COMMIT, only(5)),
    end("parts-bump", "nothing to abort", ABORT, only(5)),
    completed("parts-bump", "CompleteAbort"),
    end("parts-bump", "nothing to commit, newer epoch", COMMIT, only(5), epoch=1),
    init("parts-open", "first", only(4)),
    add("parts-open", "one", (TWO, 0), versions=only(3)),
    init("parts-open", "over an open transaction, first answer", only(4), until=None),
    init("parts-open", "restarted over an open transaction", only(4)),
    completed("parts-open", "Empty"),
    add("parts-open", "the former producer", (TWO, 0), epoch=-1),
    end("parts-open", "the former producer", COMMIT, epoch=-1),
]  # fmt: skip

LISTS = [
    describe("none"),
    init("seen", "first", only(5)),
    add("seen", "one", (TWO, 0), versions=only(3)),
    listed("ongoing", state_filters=["Ongoing"]),
    listed("state of no name", state_filters=["Ongoing", "nothing"]),
    listed("states without a transaction", state_filters=["Empty", "Dead", "PrepareEpochFence"]),
    listed("all"),
    listed("complete", state_filters=["CompleteCommit", "CompleteAbort"]),
    listed("unknown producer", producer_id_filters=[123_456]),
    listed("negative producer", producer_id_filters=[-1], state_filters=["Ongoing"]),
    listed("for long", range(1, 3), duration_filter=3_600_000),
    listed("negative time", range(1, 3), duration_filter=-5, state_filters=["Ongoing"]),
    listed("by name", only(2), transactional_id_pattern="parts-(none|open)"),
    listed("by a part of a name", only(2), transactional_id_pattern="arts-"),
    listed("by a pattern that is none", only(2), transactional_id_pattern="(["),
    listed("by an empty pattern", only(2), transactional_id_pattern="", state_filters=["Ongoing"]),
    *(Case(f"{key!r} of type 1", "find_coordinator", {"key": key, "key_type": 1, "coordinator_keys": [key]}, until=is_settled)
      for key in ("seen", "", "\u00e9 \n", "x" * 30_000)),
    end("seen", "commit", COMMIT, only(5)),
]  # fmt: skip

CHAPTERS = {
    "transactions: producer ids": INIT,
    "transactions: partitions": PARTITIONS,
    "transactions: lists": LISTS,
}
