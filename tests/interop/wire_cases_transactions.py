"""The APIs of transactions: a life of transactional ids at the versions of old and new clients."""

# ruff: noqa: E501 - the requests are a table: one line each reads best

from __future__ import annotations

from typing import Any

from wire_cases import batch
from wire_exchange import Body, Case, State

TRANSACTIONS = 1
KEY_AND_DATA = "audit-two"
PAUSE_S = 0.3


def kept(name: str) -> Any:
    def keep(state: State, answer: Any) -> None:
        if not answer.error_code and answer.producer_id >= 0:
            state.kept[name] = (answer.producer_id, answer.producer_epoch)

    return keep


def init(label: str, name: str, version: int = 5, *, patient: bool = False, **more: Any) -> Case:
    body = {"transactional_id": name, "transaction_timeout_ms": 60_000, **more}
    return Case(f"{label} {name}", "init_producer_id", body, range(version, version + 1),
                keep=kept(name), pause_s=PAUSE_S, patient=patient)  # fmt: skip


def known(state: State, name: str, ahead: int = 0) -> Body:
    producer_id, epoch = state.kept.get(name, (0, 0))
    return {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch + ahead}


def add(
    label: str, name: str, *topics: tuple[str, list[int]], versions: range, ahead: int = 0
) -> Case:
    """Return the AddPartitionsToTxn of a client, versions 0 to 3."""

    def body(state: State) -> Body:
        return {
            **{f"v3_and_below_{key}": value for key, value in known(state, name, ahead).items()},
            "v3_and_below_topics": [{"name": t, "partitions": at} for t, at in topics],
        }

    return Case(f"add {label} {name}", "add_partitions_to_txn", body, versions)


def add_for(
    label: str, name: str, *topics: tuple[str, list[int]], verify: bool, ahead: int = 0
) -> Case:
    """Return the AddPartitionsToTxn of a broker, versions 4 and 5."""

    def body(state: State) -> Body:
        return {"transactions": [{
            **known(state, name, ahead), "verify_only": verify,
            "topics": [{"name": t, "partitions": at} for t, at in topics],
        }]}  # fmt: skip

    return Case(f"broker adds {label} {name}", "add_partitions_to_txn", body, range(4, 6))


def end(
    label: str, name: str, version: int, *, commits: bool, ahead: int = 0, stays: bool = False
) -> Case:
    return Case(
        f"end {label} {name}", "end_txn",
        lambda state: {**known(state, name, ahead), "committed": commits},
        range(version, version + 1),
        keep=None if stays or version < 5 else kept(name), pause_s=PAUSE_S,
    )  # fmt: skip


def describe(label: str, *names: str) -> Case:
    return Case(f"describe {label}", "describe_transactions", {"transactional_ids": list(names)})


def listed(label: str, **filters: Any) -> Case:
    return Case(f"list {label}", "list_transactions", {"transactional_id_pattern": None, **filters})


TWO = (KEY_AND_DATA, [0, 1])
OLD, NEW = range(4), range(3, 4)

CASES = [
    Case("coordinator", "find_coordinator", {"key_type": TRANSACTIONS, "key": "old", "coordinator_keys": ["old", "new"]},
         range(2, 3), pause_s=PAUSE_S, patient=True),
    init("first", "old", patient=True),
    init("first", "new", patient=True),
    *(Case(f"refused {label}", "init_producer_id", {"transactional_id": "refused", "transaction_timeout_ms": 1000, **body})
      for label, body in (("negative timeout", {"transaction_timeout_ms": -1}), ("no timeout", {"transaction_timeout_ms": 0}),
                          ("long timeout", {"transaction_timeout_ms": 900_001}), ("empty", {"transactional_id": ""}))),
    Case("two phases", "init_producer_id", {"transactional_id": "refused", "transaction_timeout_ms": 1, "enable2_pc": True}, range(6, 7)),
    Case("kept prepared", "init_producer_id", {"transactional_id": "refused", "transaction_timeout_ms": 1, "keep_prepared_txn": True}, range(6, 7)),
    # A client that keeps its epoch.
    describe("empty", "old", "missing", ""),
    end("nothing", "old", 4, commits=True),
    end("nothing", "old", 4, commits=False),
    add("missing topic", "old", ("audit-none", [0]), TWO, versions=OLD),
    add("missing partition", "old", (KEY_AND_DATA, [0, 7]), versions=OLD),
    add("internal", "old", ("__transaction_state", [0]), versions=OLD),
    add("later epoch", "old", TWO, versions=OLD, ahead=1),
    add("unknown id", "missing", TWO, versions=OLD),
    add("empty id", "", TWO, versions=OLD),
    add("two", "old", TWO, versions=OLD),
    add("again", "old", TWO, versions=OLD),
    describe("ongoing", "old"),
    Case("offsets", "add_offsets_to_txn", lambda state: {**known(state, "old"), "group_id": "audit-group"}, pause_s=PAUSE_S),
    Case("offsets of a later epoch", "add_offsets_to_txn", lambda state: {**known(state, "old", 1), "group_id": "g"}),
    Case("offsets of a missing id", "add_offsets_to_txn", lambda state: {**known(state, "missing"), "group_id": "g"}),
    listed("all"),
    listed("ongoing", state_filters=["Ongoing", "nonsense"]),
    listed("empty", state_filters=["Empty", "Dead", "PrepareEpochFence"]),
    listed("no producer", producer_id_filters=[123456789]),
    Case("list pattern", "list_transactions", {"transactional_id_pattern": "o.d"}, range(2, 3)),
    Case("list bad pattern", "list_transactions", {"transactional_id_pattern": "("}, range(2, 3)),
    Case("list long", "list_transactions", {"duration_filter": 3_600_000, "transactional_id_pattern": None}, range(1, 3)),
    *(Case(f"end of {label} {commits}", "end_txn", lambda state, name=name, ahead=ahead, commits=commits:
           {**known(state, name, ahead), "committed": commits})
      for label, name, ahead in (("later epoch", "old", 1), ("earlier epoch", "old", -1), ("missing", "missing", 0), ("nobody", "", 0))
      for commits in (True, False)),
    end("ongoing", "old", 4, commits=True),
    describe("committed", "old"),
    end("again", "old", 4, commits=True),
    end("otherwise", "old", 4, commits=False),
    # A client that gets an epoch for each transaction.
    end("nothing", "new", 5, commits=True, stays=True),
    end("nothing", "new", 5, commits=False),
    describe("aborted nothing", "new"),
    add_for("two", "new", TWO, verify=True),
    add_for("two", "new", TWO, verify=False),
    add_for("two", "new", TWO, verify=True),
    add_for("other", "new", ("audit-data", [0]), verify=True),
    add_for("missing topic", "new", ("audit-none", [0]), TWO, verify=False),
    add_for("later epoch", "new", TWO, verify=True, ahead=1),
    add_for("later epoch", "new", TWO, verify=False, ahead=1),
    add_for("unknown", "missing", TWO, verify=True),
    add_for("empty", "", TWO, verify=False),
    describe("ongoing too", "new"),
    end("ongoing", "new", 5, commits=True),
    end("again", "new", 5, commits=True, ahead=-1, stays=True),
    end("otherwise again", "new", 5, commits=False, ahead=-1, stays=True),
    end("too early", "new", 5, commits=True, stays=True),
    end("later", "new", 5, commits=True, ahead=1, stays=True),
    # Fencing and recovery.
    add("open", "new", TWO, versions=NEW),
    init("fencing", "new"),
    describe("fenced", "new"),
    init("next", "new"),
    *(Case(f"recovery {label}", "init_producer_id", lambda state, ahead=ahead: {**known(state, "new", ahead), "transaction_timeout_ms": 1000},
           range(version, version + 1))
      for label, ahead, version in (("ahead", 5, 5), ("ahead old", 5, 3), ("fits", 0, 5), ("again", 0, 5), ("behind", -1, 5))),
    # Requests of brokers and of consumers in transactions.
    *(Case(f"markers {label}", "write_txn_markers", {"markers": markers})
      for label, markers in (("none", []), ("missing topic", [{
          "producer_id": 999, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
          "topics": [{"name": "audit-none", "partition_indexes": [0]}]}]))),
    Case("transactional offsets", "txn_offset_commit", lambda state: {**known(state, "missing"), "group_id": "", "topics": []}),
    Case("batch of nobody", "produce", lambda state: {
        "transactional_id": "missing", "acks": -1, "timeout_ms": 1000, "topic_data": [{"name": KEY_AND_DATA, "partition_data": [
            {"index": 0, "records": batch(b"v", is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)}]}]},
        range(9, 13)),
]  # fmt: skip
