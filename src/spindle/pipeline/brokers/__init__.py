"""Reads through the brokers, without Spark: options, planning, offset ranges and tasks."""

from spindle.common.optional_dependencies import ARROW, require

require(ARROW)
