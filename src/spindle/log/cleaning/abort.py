"""The signal that ends a compaction pass whose log is truncated, renamed or deleted."""


class CleaningAbort:
    """Shared by a log and the compaction pass over it.

    The directory's thread calls `abort` before it removes or renames a file; the pass runs on a
    thread of its own and checks `is_aborted`. So if a file is missing although the signal is not
    set, there is another reason.
    """

    __slots__ = ("is_aborted",)

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True
