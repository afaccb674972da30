"""The state file of a running execution: the changes that a later run must undo or wait for.

The cluster has all other state, so a killed execution continues where it was.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spindle.operations.errors import OperationFailed
from spindle.operations.reassignment import parse_plan_json
from spindle.operations.state_files import replace_document
from spindle.operations.throttles import ThrottledReplicas


@dataclass(slots=True)
class ExecutionFile:
    """The content of the file.

    Attributes:
        goal: the goal of the execution, such as `drain 2:/disk3`.
        cordoned: the entries of `cordoned.log.dirs` that this execution has set or is about to set.
        throttled: the throttled replicas that this execution has added to topics, or is about to.
        brokers: those that may have throttles.
        round: the text of the moves that may be running, in the format of Kafka's tool.
        deleted: the replicas that have left and may still use space (`OwnDeletions`).
    """

    path: Path
    cluster_id: str
    goal: str
    cordoned: list[str] = field(default_factory=list)
    throttled: ThrottledReplicas = field(default_factory=dict)
    brokers: list[int] = field(default_factory=list)
    round: str = ""
    deleted: list[list[Any]] = field(default_factory=list)

    def save(self) -> None:
        """Replace the file in one step, so that a kill leaves the old or the new one."""
        replace_document(self.path, {k: v for k, v in asdict(self).items() if k != "path"})

    def end(self) -> None:
        """Remove the file, unless changes are still to be undone.

        These are throttles of brokers, and the cordons in `cordoned`.
        """
        self.throttled, self.round = {}, ""
        if self.brokers or self.cordoned:
            self.save()
        else:
            self.path.unlink(missing_ok=True)


def open_execution_file(path: Path, cluster_id: str, goal: str) -> ExecutionFile:
    """Return the file of an earlier run for the same goal, or a new one that is not saved yet.

    Raises:
        OperationFailed: the file belongs to another goal or cluster, or is damaged.
    """
    if not path.exists():
        return ExecutionFile(path, cluster_id, goal)
    try:
        file = ExecutionFile(path=path, **json.loads(path.read_text(encoding="utf-8")))
        kinds = {
            "cordoned": list,
            "throttled": dict,
            "brokers": list,
            "round": str,
            "deleted": list,
        }
        if not all(isinstance(getattr(file, name), kind) for name, kind in kinds.items()):
            raise TypeError(path)
        if file.round:
            parse_plan_json(file.round)
        has_types = _are(int, file.brokers) and _are(str, file.cordoned)
        has_types = has_types and all(map(_is_deletion, file.deleted))
        if not has_types or not _are_entries(file.throttled):
            raise TypeError(path)
    except (ValueError, TypeError, RecursionError):
        raise OperationFailed(
            f"{path} is damaged, or is not the state file of an execution: choose another file "
            "with `state`, or delete it, and start again. The cordons and throttles that it named "
            "then stay until you remove them (spindle disks uncordon, spindle kafka "
            "reassign-partitions --verify)"
        ) from None
    if (file.cluster_id, file.goal) != (cluster_id, goal):
        raise OperationFailed(
            f"{path} is of {file.goal!r} in cluster {file.cluster_id}, not of {goal!r} in "
            f"{cluster_id}; choose another file with `state`"
        )
    return file


def _is_deletion(entry: Any) -> bool:
    """Return whether a value is a broker, a path, bytes and a time."""
    kinds = (int, str, int, int)
    return (
        isinstance(entry, list)
        and len(entry) == len(kinds)
        and all(isinstance(item, kind) for item, kind in zip(entry, kinds, strict=True))
    )


def _are(kind: type, values: Iterable[Any]) -> bool:
    """Return whether all values are of the given type."""
    return all(isinstance(value, kind) for value in values)


def _are_entries(throttled: Mapping[Any, Any]) -> bool:
    """Return whether a value is lists of texts by key by topic."""
    if not _are(str, throttled) or not _are(dict, throttled.values()):
        return False
    lists = [item for by_key in throttled.values() for item in by_key.values()]
    return _are(list, lists) and all(_are(str, item) for item in lists)
