"""The replicas affected by a change of a log directory, as text and as JSON."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from spindle.cli.disks.state_text import stray_text
from spindle.cli.table import table_lines
from spindle.cli.tools.failures import FAILURES
from spindle.client.blocking.client import WireClient
from spindle.client.disks import disks_of_spindle
from spindle.common.ids import TopicPartition
from spindle.common.uuids import uuid_text
from spindle.disks.alter_disks import AlteredDirectory, DirectoryInUse, ReplicaState
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse

_HEAD: Final = ("TOPIC", "PARTITION", "STATE")
_STATES: Final = {
    ReplicaState.PRESENT: "in the directory",
    ReplicaState.FOUND: "found, catches up",
    ReplicaState.CREATED: "created again, catches up",
    ReplicaState.OFFLINE: "LOST: no other replica leads",
    ReplicaState.CREATED_EMPTY: "created empty, its loss is accepted",
}
_WORDS: Final = {
    ReplicaState.PRESENT: "present",
    ReplicaState.FOUND: "found",
    ReplicaState.CREATED: "created",
    ReplicaState.OFFLINE: "lost",
    ReplicaState.CREATED_EMPTY: "created empty",
}
_ADVICE: Final = (
    "No other replica of these partitions leads, so records may be gone for good. If another "
    "replica has most of them, `spindle topic elect --unclean` makes it the leader; otherwise "
    "restore the disk, or delete the topic."
)


def replica_lines(replicas: Mapping[TopicPartition, ReplicaState]) -> list[str]:
    """Return a table of the replicas, and advice about those that are lost."""
    if not replicas:
        return []
    rows = [(where.topic, str(where.partition), _STATES[s]) for where, s in replicas.items()]
    lines = ["", *table_lines(_HEAD, rows)]
    if ReplicaState.OFFLINE in replicas.values():
        lines += ["", _ADVICE]
    return lines


def altered_document(broker: int, altered: AlteredDirectory) -> dict[str, Any]:
    """Return the document of a change."""
    return {
        "broker": broker,
        "path": altered.path,
        "directoryId": uuid_text(altered.directory_id),
        "wasFormatted": altered.was_formatted,
        "replicas": _replica_documents(altered.replicas),
    }


def refusal_document(broker: int, error: DirectoryInUse) -> dict[str, Any]:
    """Return the document of a refused change."""
    return {
        "broker": broker,
        "path": error.path,
        "error": error.message,
        "replicas": _replica_documents(error.replicas),
    }


def _replica_documents(replicas: Mapping[TopicPartition, ReplicaState]) -> list[dict[str, Any]]:
    """Return the replicas as documents."""
    return [
        {"topic": where.topic, "partition": where.partition, "state": _WORDS[state]}
        for where, state in replicas.items()
    ]


def stray_lines(client: WireClient, broker: int, path: str) -> list[str]:
    """Return a line about the stray logs of a directory: the metadata places them elsewhere.

    Without a response there is no line, because the change itself has succeeded.
    """
    with suppress(*FAILURES):
        address = client.metadata(()).broker(str(broker))
        answer = client.ask_spindle(address, DescribeDisksRequest(), DescribeDisksResponse)
        for disk in disks_of_spindle(answer).disks:
            if disk.path == path and disk.stray_count:
                return [
                    "",
                    f"{path} has {stray_text(disk)}: the metadata places their replicas "
                    "elsewhere. The broker keeps them in folders with the suffix -stray: delete "
                    "those that you do not need.",
                ]
    return []
