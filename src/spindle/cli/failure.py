"""The failure of a command."""


class CommandFailed(Exception):
    """A command failed. The text is the line that is shown."""
