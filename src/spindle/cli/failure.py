"""The failure of a command."""


class CommandFailed(Exception):
    """A command cannot do what the user asked for. The text is the one line that is shown."""
