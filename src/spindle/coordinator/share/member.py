"""A member of a share group (KIP-932)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from spindle.common.uuids import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id."""

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member. Its epoch is that of the target assignment that it has."""

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)
