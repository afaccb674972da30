"""The stored offsets below which the logs of a directory are clean: `cleaner-offset-checkpoint`."""

import logging

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.ports import FileSystem
from spindle.log.formats.checkpoints import (
    CLEANER_OFFSETS,
    read_offset_checkpoint,
    write_offset_checkpoint,
)

logger = logging.getLogger(__name__)


def read_clean_offsets(file_system: FileSystem, directory: str) -> dict[TopicPartition, int]:
    """Return the offsets by partition; write the file anew if it is malformed.

    Without them compaction reads the logs from their starts; no record depends on them. (Kafka
    takes the directory offline.)
    """
    path = f"{directory}/{CLEANER_OFFSETS}"
    try:
        return read_offset_checkpoint(file_system, path)
    except CorruptLog as error:
        logger.warning("%s; it is written anew, and compaction begins at the log starts", error)
        write_offset_checkpoint(file_system, path, {})
        return {}
