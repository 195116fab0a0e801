"""The arguments of `tiered users`: argparse and nothing else. A password is never one of them."""

from tiered.cli.arguments import Commands, Parser, broker_options, command, positive
from tiered.rules.security.sasl.mechanism import DEFAULT_ITERATIONS

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ALL_OF_THE_USER = "all that the user has"
_ABOUT_PASSWORDS = (
    "The password is the first line of --password-file or of standard input; on a terminal it is asked for.",
    "It never leaves this process: the broker gets what SCRAM keeps of it.",
)


def add_users(commands: "Commands[Parser]") -> None:
    """Adds `users` with its actions."""
    users = command(
        commands, "users", None, "list, create and delete those who log in by a password, and give them new ones"
    )
    actions: Commands[Parser] = users.add_subparsers(metavar="ACTION", title="actions")

    listing = command(
        actions, "list", "users.commands:run_list", "list users, with the mechanisms by which they may log in"
    )
    creating = command(
        actions, "create", "users.commands:run_create", "make a user who does not exist yet", *_ABOUT_PASSWORDS
    )
    setting = command(
        actions, "set-password", "users.commands:run_set_password", "give a user a new password", *_ABOUT_PASSWORDS
    )
    for parser in (creating, setting):
        parser.add_argument("--password-file", metavar="FILE", help="where the password is (standard input)")
        parser.add_argument(
            "--iterations",
            metavar="N",
            type=positive,
            default=DEFAULT_ITERATIONS,
            help=f"how dear each guess of the password is, 4096 to 16384 ({DEFAULT_ITERATIONS})",
        )
    deleting = command(
        actions, "delete", "users.commands:run_delete", "take a user's passwords away, of all mechanisms or of one"
    )
    for parser, usual in ((creating, "SCRAM-SHA-512"), (setting, _ALL_OF_THE_USER), (deleting, _ALL_OF_THE_USER)):
        parser.add_argument("user", metavar="NAME")
        parser.add_argument("--mechanism", choices=MECHANISMS, action="append", help=f"may be repeated ({usual})")
    for parser in (listing, creating, setting, deleting):
        parser.add_argument(
            "--meta",
            metavar="URL",
            help="change the metadata store itself, as for the first user, who exists before any broker",
        )
        broker_options(parser)
