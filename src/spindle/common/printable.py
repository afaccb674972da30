"""Names that others chose, as text that a terminal or a page can show."""


def printable(text: str) -> str:
    r"""Return a text with escapes instead of control and invisible characters.

    Control characters, marks that turn the direction of writing, and bytes of a file name that are
    no Unicode become escapes such as `\x1b`. All other characters stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _escape(character) for character in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
