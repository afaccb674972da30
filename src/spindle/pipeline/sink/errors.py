"""Why the sink stops instead of writing rows twice or losing them."""


class SinkError(Exception):
    """The rows of a batch cannot be written, or not exactly once."""


class SinkReplaced(SinkError):
    """Another run of the same query has begun since; this one may commit nothing any more."""


class InputChanged(SinkError):
    """A part of the batch is committed, and the replayed rows are not the ones of then."""


class OutcomeUnknown(SinkError):
    """The cluster does not report whether a transaction of the batch was committed."""
