"""Errors of a read whose options are right and whose input is not corrupt."""


class DataLoss(Exception):
    """Offsets of the read are no longer in the log.

    With `failOnDataLoss=false` a read returns the records that are left.
    """


class LogChanged(Exception):
    """The log was truncated or rewritten under a new leader while it was read; read it again."""
