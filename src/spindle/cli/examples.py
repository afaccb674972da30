"""Examples at the end of a command's help."""


def examples(*lines: str) -> str | None:
    """Return the epilog of a help with these command lines; None without any."""
    # A paragraph that begins with this character is not wrapped.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)]) if lines else None
