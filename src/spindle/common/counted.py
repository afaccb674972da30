"""Numbers of things as text for people."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: `1 move`, `2 moves`, `1,000 batches`.

    Args:
        plural: of the noun, if it is more than the noun with an s.
    """
    many = plural or f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"
