"""A `-delete` directory: the log of a deleted replica, or one whose place another log has taken."""

import logging
from typing import NamedTuple

from spindle.common.errors import CorruptLog
from spindle.common.ids import OffsetAndEpoch, TopicPartition
from spindle.common.uuids import Uuid
from spindle.log.formats.names import LOG_SUFFIX, parse_offset_name
from spindle.log.log_config import LogConfig
from spindle.log.segments.segment import Segment
from spindle.log.storage import LogStorage

logger = logging.getLogger(__name__)


class DeletedLog(NamedTuple):
    """A `-delete` directory that must be kept for now: the log of a deleted replica, or one that a
    future log has replaced or was about to replace.

    Attributes:
        name: of the directory.
        topic_partition: the topic's name may have been cut to fit.
        topic_id: None if `partition.metadata` is missing or damaged.
        has_records: False if its removal had begun, for the segments are removed first.
    """

    name: str
    topic_partition: TopicPartition
    topic_id: Uuid | None
    has_records: bool = True


def bytes_of_segments(storage: LogStorage, path: str) -> int:
    """Return the bytes of the segments in a directory; 0 if it is gone."""
    files = storage.file_system
    try:
        segments = [name for name in files.list_directory(path) if name.endswith(LOG_SUFFIX)]
        return sum(files.size(f"{path}/{segment}") for segment in segments)
    except FileNotFoundError:  # an operator may have removed it
        return 0


def end_of_log(storage: LogStorage, path: str) -> OffsetAndEpoch | None:
    """Return the end offset of the log in a directory and the epoch of its last batch.

    None if it has no batch. Bytes behind a damaged batch do not count: a load cuts it off.
    """
    end, files = None, storage.file_system
    try:
        names = sorted(name for name in files.list_directory(path) if name.endswith(LOG_SUFFIX))
        for name in reversed(names):
            base_offset = parse_offset_name(name, LOG_SUFFIX)
            if base_offset is None:
                continue
            segment = Segment(storage.handles, path, base_offset, LogConfig(), 0)
            segment.size_bytes = files.size(segment.path)
            for _, header in segment.headers(0):
                end = OffsetAndEpoch(header.next_offset, header.leader_epoch)
            if end is not None:
                break
    except FileNotFoundError:  # an operator may have removed it
        pass
    except CorruptLog as error:
        logger.warning("%s", error)
    storage.handles.release_below(path)
    return end
