"""Deliberate mistakes of a node, which the fuzzer must find; `tests/fuzz` proves that it does.

A mutant is a function that changes the program in the process of the node, before it starts.
"""

from typing import Any

from spindle.common.errors import ApiError
from spindle.coordinator.share.share_partition import SharePartition
from spindle.log.segments import lookup


def records_that_do_not_parse_are_a_dead_disk() -> None:
    """Let a search that cannot decode a batch count as an error of the disk."""
    advance = lookup.TimestampSearch.advance

    def advance_or_fail(search: lookup.TimestampSearch, *args: Any) -> None:
        try:
            advance(search, *args)
        except ApiError as error:
            raise OSError(str(error)) from error

    setattr(lookup.TimestampSearch, advance.__name__, advance_or_fail)


def searches_decode_without_limits_on_the_thread_of_the_directory() -> None:
    """Let searches by time decode any number of batches of 256 MiB where appends wait."""
    for name in ("SMALL_BATCH_BYTES", "MAX_DECODED_BATCHES"):
        setattr(lookup, name, 256 * 1024 * 1024)


def acknowledgements_of_records_that_nobody_holds_are_taken() -> None:
    """Let a member of a share group acknowledge records twice, and those of others."""
    check = SharePartition._check_acquired
    setattr(SharePartition, check.__name__, lambda *_: None)
