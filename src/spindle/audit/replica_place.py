"""Where a replica lies on a disk, and what its log directory says about it.

The way in which a broker left a directory decides what may be unfinished in it.
"""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from spindle.audit.file_limits import refuse_odd_file
from spindle.columnar.directory_files import LOCK_FILE, is_in_use
from spindle.common.ids import METADATA_TOPIC, TopicPartition
from spindle.log.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE
from spindle.log.formats.names import LogKind


class ClosingState(Enum):
    """IN_USE: a process holds the lock. CLOSED: the broker closed all logs in order. KILLED: it
    did not; its next start repairs the ends of logs and the indexes of active segments.
    """

    IN_USE = "in use"
    CLOSED = "closed"
    KILLED = "not closed"


@dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """The checkpoint entries of a partition in its log directory; None if there is none.

    Without a `cleaner-offset-checkpoint` that can be read (`has_cleaner_file`), nothing says
    whether a log was compacted.
    """

    recovery_point: int | None = None
    log_start: int | None = None
    high_watermark: int | None = None
    cleaner: int | None = None
    has_cleaner_file: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """A replica's directory, and what is known about it from outside.

    Attributes:
        kind: current, future or stray.
        node_id: None if the log directory does not contain it.
        is_compacted: the topic's policy; None if it is not known.
        checks_records: the records are decoded, too.
    """

    path: Path
    partition: TopicPartition
    kind: LogKind
    state: ClosingState
    node_id: int | None = None
    checkpointed: CheckpointedOffsets = field(default_factory=CheckpointedOffsets)
    is_compacted: bool | None = None
    checks_records: bool = False

    @property
    def is_metadata_log(self) -> bool:
        return self.partition.topic == METADATA_TOPIC

    @property
    def is_current_of_topic(self) -> bool:
        """Whether it is a current replica, no copy of a move or stray, and not the metadata log."""
        return self.kind is LogKind.CURRENT and not self.is_metadata_log


def state_of(directory: Path) -> ClosingState:
    """Return the state of a log directory; OSError if the disk refuses."""
    refuse_odd_file(directory / LOCK_FILE)
    if is_in_use(directory):
        return ClosingState.IN_USE
    if (directory / CLEAN_SHUTDOWN_FILE).exists():
        return ClosingState.CLOSED
    return ClosingState.KILLED
