"""A topic as the simulated clients know it."""

from dataclasses import dataclass

from spindle.common.uuids import Uuid


@dataclass(slots=True)
class Topic:
    """`is_deleted` from the moment at which its deletion was first asked for.

    `may_lose`: an unclean election may be requested. `may_trim`: old records may be deleted.
    """

    name: str
    topic_id: Uuid
    partitions: int
    is_deleted: bool = False
    may_lose: bool = False
    may_trim: bool = False
