"""How a command ends other than well: the two errors and their exit codes.

Owns the exit codes. Messages are for the person at the keyboard: what is wrong, and what to do about it.
"""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells give it for a command that Ctrl-C ended."""


class CommandFailed(Exception):
    """The command was understood and could not be done: exit code 1."""


class UsageError(Exception):
    """The command cannot be meant like this: exit code 2."""
