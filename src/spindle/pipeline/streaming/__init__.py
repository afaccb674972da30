"""Structured Streaming: positions, how much a batch reads, and the reader that Spark calls."""

from spindle.common.optional_dependencies import SPARK, require

require(SPARK)

from spindle.pipeline.streaming.progress import (  # noqa: E402
    OffsetsBehind,
    offsets_behind_latest,
)

__all__ = ["OffsetsBehind", "offsets_behind_latest"]
