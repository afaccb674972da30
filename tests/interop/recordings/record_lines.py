"""Metadata records as lines of a recording.

A line that begins with `-` is the first record of a batch, one that begins with `+` continues it.
Records whose order or grouping depends on the time of requests follow in a fixed order:

* records of one kind in a batch are sorted, and each record of a configuration stands alone: Kafka
  writes the records of several requests in one batch if they come within milliseconds;
* registrations of nodes are ordered by node, each record alone, those of controllers first;
* changes of ISR, directories and cordons that brokers ask for follow at the end of the step (`*`),
  the last value alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from recordings.metadata_log import Batch, Entry
from recordings.names import Names

_REGISTRATIONS = {
    "REGISTER_CONTROLLER_RECORD": "controllerId",
    "REGISTER_BROKER_RECORD": "brokerId",
    "BROKER_REGISTRATION_CHANGE_RECORD": "brokerId",
}
_REQUESTED = ({"isr"}, {"directories"}, {"isr", "leaderRecoveryState"})
"""The fields of a change that brokers ask for, beside the partition."""


def without_repeated_fences(batches: Iterable[Batch], fenced: set[int]) -> list[Batch]:
    """Return the batches without the fencing of brokers that are fenced; update `fenced`.

    Kafka fences a broker that has stopped once more when its session expires.
    """
    kept_batches = []
    for batch in batches:
        kept = []
        for entry in batch.entries:
            broker = entry.data.get("brokerId", -1)
            is_fencing = entry.kind == "BROKER_REGISTRATION_CHANGE_RECORD" and (
                entry.data.get("fenced", 0) == 1
            )
            if not (is_fencing and broker in fenced):
                kept.append(entry)
            if is_fencing or entry.kind == "REGISTER_BROKER_RECORD":
                fenced.add(broker)
            elif entry.data.get("fenced") == -1:
                fenced.discard(broker)
        kept_batches.append(Batch(batch.base_offset, kept))
    return kept_batches


def record_lines(batches: Sequence[Batch], names: Names) -> list[str]:
    """Return the lines of the batches of a step.

    The directories of partitions that are reassigned are left out: a reassignment may be complete
    before or after the broker has reported the directory of the new replica.
    """
    reassigned: set[tuple[object, object]] = set()
    for batch in batches:
        for entry in batch.entries:
            if entry.kind == "TOPIC_RECORD":
                names.add(entry.data["topicId"], f"topic {entry.data['name']}")
            if entry.kind == "PARTITION_CHANGE_RECORD" and entry.data.get("replicas"):
                reassigned.add((entry.data["topicId"], entry.data["partitionId"]))
    requested: dict[tuple[str, ...], str] = {}
    decided: list[list[Entry]] = []
    for batch in batches:
        is_requested = all(map(_is_requested, batch.entries))
        rest = []
        for entry in batch.entries:
            place = (entry.data.get("topicId"), entry.data.get("partitionId"))
            if place in reassigned and entry.data.get("directories"):
                entry.data["directories"] = ["<any>"]
                if _is_report(entry):
                    continue
            if is_requested or _is_report(entry):
                requested[_subject(entry)] = f"* {_text(entry, names)}"
            else:
                rest.append(entry)
        if rest:
            decided.append(rest)
    lines = []
    for entries in _in_order(decided):
        texts = _texts(entries, names)
        for number, text in enumerate(texts):
            is_first = number == 0 or text.startswith("CONFIG_RECORD")
            lines.append(f"{'-' if is_first else '+'} {text}")
    return [*_with_sorted_configurations(lines), *sorted(requested.values())]


def _with_sorted_configurations(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; tools send the changes of several brokers to each of them at once."""
    for is_config, run in groupby(lines, key=lambda line: line.startswith("- CONFIG_RECORD")):
        texts = list(run)
        yield from sorted(texts) if is_config else texts


def _in_order(batches: Iterable[list[Entry]]) -> list[list[Entry]]:
    """Order the registrations between two other batches by node, controllers first of all."""
    ordered: list[list[Entry]] = []
    controllers: list[list[Entry]] = []
    run: list[list[Entry]] = []
    for batch in batches:
        kinds = {entry.kind for entry in batch}
        if kinds == {"REGISTER_CONTROLLER_RECORD"}:
            controllers.append(batch)
        elif kinds <= _REGISTRATIONS.keys():
            run += [[entry] for entry in batch]
        else:
            ordered += sorted(run, key=_registration)
            run = []
            ordered.append(batch)
    place = max((n for n, b in enumerate(ordered, 1) if b[0].kind == "LeaderChange"), default=0)
    ordered[place:place] = sorted(controllers, key=_registration)
    return [*ordered, *sorted(run, key=_registration)]


def _registration(batch: list[Entry]) -> int:
    """Return the id of the node; the records of a node keep their order."""
    number: int = batch[0].data[_REGISTRATIONS[batch[0].kind]]
    return number


def _subject(entry: Entry) -> tuple[str, ...]:
    """Return what a request is about: its last value counts."""
    data = entry.data
    if "cordonedLogDirs" in data:
        return (str(data["brokerId"]),)
    return (data["topicId"], str(data["partitionId"]), _changed(entry)[0])


def _changed(entry: Entry) -> list[str]:
    present = {key for key, value in entry.data.items() if value is not None}
    return sorted(present - {"topicId", "partitionId"})


def _is_report(entry: Entry) -> bool:
    """Return True for what brokers report about directories: Kafka may write it with the next."""
    is_assignment = entry.kind == "PARTITION_CHANGE_RECORD" and _changed(entry) == ["directories"]
    return is_assignment or "cordonedLogDirs" in entry.data


def _is_requested(entry: Entry) -> bool:
    return entry.kind == "PARTITION_CHANGE_RECORD" and set(_changed(entry)) in _REQUESTED


def _texts(entries: Iterable[Entry], names: Names) -> Iterator[str]:
    """Yield the texts of a batch; records of one kind have the order of a hash map."""
    for _, run in groupby(entries, key=lambda entry: entry.kind):
        texts = [_text(entry, names) for entry in run]
        yield from sorted(texts, key=lambda text: text.partition('"topicId"')[2] + text)


def _text(entry: Entry, names: Names) -> str:
    data = json.dumps(names.record(entry.data), ensure_ascii=False)
    return f"{entry.kind} v{entry.version} {data}"
