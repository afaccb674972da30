"""The changes of a running broker's log directories, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid


class DirectoryAction(IntEnum):
    """The actions of AlterDisks, with their numbers on the wire."""

    ADD = 0
    """Use a directory that the broker did not have."""
    ONLINE = 1
    """Use a directory again that had failed: its disk was repaired or replaced."""
    REMOVE = 2
    """Stop using a directory."""


class ReplicaState(IntEnum):
    """The fate of a replica in the directory, with the numbers on the wire."""

    PRESENT = 0
    """It is in the directory, which is therefore not removed."""
    FOUND = 1
    """Its log was found in the directory."""
    CREATED = 2
    """Its log was lost; a new one gets the records of the leader."""
    OFFLINE = 3
    """Its log was lost and not created, or no leader is there that has its records."""
    CREATED_EMPTY = 4
    """Its loss was accepted: the only replica, created with the records that were left, if any."""


@dataclass(frozen=True, slots=True)
class AlteredDirectory:
    """The result of an action.

    Attributes:
        directory_id: of the directory, as the controller knows it.
        was_formatted: the directory was empty and got a new id.
        replicas: the replicas that the action concerned, in their order.
    """

    path: str
    directory_id: Uuid
    was_formatted: bool = False
    replicas: Mapping[TopicPartition, ReplicaState] = field(default_factory=dict)


class DirectoryInUse(ApiError):
    """Replicas prevent the change of a directory: they are in it, or would be lost."""

    def __init__(
        self, path: str, replicas: Mapping[TopicPartition, ReplicaState], message: str
    ) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)
        self.path = path
        self.replicas = replicas
