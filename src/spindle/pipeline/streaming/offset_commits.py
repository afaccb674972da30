"""Commit the offsets of finished batches to a consumer group, so that tools can show its lag.

The stream itself never reads these offsets: its checkpoint decides where it continues. So a commit
that fails is only logged, and it gives up early, because the next batch waits for it. It is not
tried again: the commit after the next batch replaces it.
"""

import logging
from dataclasses import replace
from typing import Final

from spindle.client.admin.groups import commit_offsets
from spindle.client.blocking.client import WireClient
from spindle.client.errors import ClientError
from spindle.common.errors import ApiError
from spindle.pipeline.streaming.options import StreamReadOptions
from spindle.pipeline.streaming.position import Offsets

_LOG: Final = logging.getLogger(__name__)
_MAX_WAIT_MS: Final = 5_000


class OffsetCommits:
    """Commits to the group of `commitOffsetsTo`, if the options name one."""

    def __init__(self, options: StreamReadOptions) -> None:
        self._group = options.commit_group
        settings = options.read.client
        wait_ms = min(settings.api_timeout_ms, _MAX_WAIT_MS)
        self._client = WireClient(replace(settings, api_timeout_ms=wait_ms))
        self._tried: Offsets = {}

    def commit(self, offsets: Offsets) -> None:
        """Commit the next offset of each partition, if they are new; log a failure."""
        if self._group is None or offsets == self._tried:
            return
        self._tried = offsets
        try:
            # Between two batches brokers close idle connections; the metadata finds a new one.
            self._client.metadata(())
            commit_offsets(self._client, self._group, offsets)
        except (ApiError, ClientError) as error:
            _LOG.warning(
                "offsets were not committed to group %r, whose lag will look too large: %s",
                self._group,
                error,
            )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
