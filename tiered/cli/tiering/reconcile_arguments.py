"""What `tiered reconcile` is told.

Owns its name, options and help. Must never import what it needs before it is chosen.
"""

from tiered.cli.arguments import Commands, Parser, command, http_options


def add_reconcile(commands: "Commands[Parser]") -> None:
    """Adds the command."""
    parser = command(
        commands,
        "reconcile",
        "tiering.reconcile:run",
        "show what disk, catalogue and object store disagree about, and what to do",
        "Brokers compare them in the background; this tells what they have found so far and asks for nothing new.",
        "Exit code 1 when anything is wrong, or a broker does not answer.",
    )
    http_options(parser)
