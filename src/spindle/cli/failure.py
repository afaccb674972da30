"""The failure of a command."""


class CommandFailed(Exception):
    """What the user asked for cannot be done. The text is the one line that is shown."""
