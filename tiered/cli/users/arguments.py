"""The arguments of `tiered users`: argparse and nothing else. A password is never one of them."""

from tiered.cli.arguments import Commands, Parser, broker_options, command, positive

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_ITERATIONS = 8192


def add_users(commands: "Commands[Parser]") -> None:
    """Adds `users` with its actions."""
    users = command(commands, "users", None, "list, create and delete those who log in by a password")
    actions: Commands[Parser] = users.add_subparsers(metavar="ACTION", title="actions")

    listing = command(
        actions, "list", "users.commands:run_list", "list users, with the mechanisms by which they may log in"
    )
    creating = command(
        actions,
        "create",
        "users.commands:run_create",
        "make a user, or give one a new password",
        "The password is the first line of --password-file or of standard input; on a terminal it is asked for.",
        "It never leaves this process: the broker gets what SCRAM keeps of it.",
    )
    creating.add_argument("user", metavar="NAME")
    creating.add_argument("--password-file", metavar="FILE", help="where the password is (standard input)")
    creating.add_argument(
        "--iterations",
        metavar="N",
        type=positive,
        default=DEFAULT_ITERATIONS,
        help=f"how dear each guess of the password is, 4096 to 16384 ({DEFAULT_ITERATIONS})",
    )
    deleting = command(
        actions, "delete", "users.commands:run_delete", "take a user's passwords away, of all mechanisms or of one"
    )
    deleting.add_argument("user", metavar="NAME")
    for parser in (creating, deleting):
        parser.add_argument(
            "--mechanism",
            choices=MECHANISMS,
            action="append",
            help="may be repeated (all that the user has; a new one gets SCRAM-SHA-512)",
        )
    for parser in (listing, creating, deleting):
        parser.add_argument(
            "--meta",
            metavar="URL",
            help="change the metadata store itself, as for the first user, who exists before any broker",
        )
        broker_options(parser)
