"""The signal that ends a compaction pass whose log is truncated, renamed or deleted."""


class CleaningAbort:
    """Shared by a log and the compaction pass over it.

    The directory's thread calls `abort` before it takes a file away; the pass, on a thread of its
    own, looks at `is_aborted`. So a file that the pass misses while the signal is not set is
    missing for another reason.
    """

    __slots__ = ("is_aborted",)

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True
