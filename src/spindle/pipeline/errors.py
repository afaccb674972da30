"""What can go wrong in a read that is no corrupt input and no wrong option."""


class DataLoss(Exception):
    """Offsets that were asked for, or planned, are no longer in the log.

    With `failOnDataLoss=false` a read returns what is there instead.
    """


class LogChanged(Exception):
    """The log was truncated or rewritten under a new leader while it was read; read it again."""
