"""The arguments of `tiered acls`: argparse and nothing else."""

import argparse

from tiered.cli.arguments import Commands, Parser, broker_options, command

RESOURCES = ("topic", "group", "transactional-id", "delegation-token", "user")
OPERATIONS = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs",
    "alter-configs", "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit",
)  # fmt: skip


def add_acls(commands: "Commands[Parser]") -> None:
    """Adds `acls` with its actions."""
    acls = command(commands, "acls", None, "list, add and remove access control lists")
    actions: Commands[Parser] = acls.add_subparsers(metavar="ACTION", title="actions")

    listing = command(
        actions, "list", "acls.commands:run_list", "list rules, all of them or those that the options mean"
    )
    adding = command(
        actions,
        "add",
        "acls.commands:run_add",
        "allow or deny principals something",
        "--producer and --consumer stand for what a producer or a consumer needs: WRITE, DESCRIBE and CREATE on the "
        "topics, or READ and DESCRIBE on the topics and READ on the groups.",
    )
    removing = command(
        actions, "remove", "acls.commands:run_remove", "take away the rules that the options mean, and say which"
    )
    for parser in (listing, removing):
        _resources(parser)
        parser.add_argument("--principal", metavar="PRINCIPAL", help="those about it alone, such as User:alice")
        parser.add_argument("--host", metavar="ADDRESS", help="those about it alone")
        parser.add_argument("--operation", choices=OPERATIONS, help="those about it alone")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--allow", action="store_true", help="those that allow")
        which.add_argument("--deny", action="store_true", help="those that deny")
        parser.add_argument(
            "--match",
            action="store_true",
            help="every rule that counts for a resource of this name, by prefix or * too",
        )
    removing.add_argument("--all", action="store_true", help="every rule; needed when nothing else is given")
    removing.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    _resources(adding, several=True)
    adding.add_argument(
        "--principal",
        metavar="PRINCIPAL",
        action="append",
        required=True,
        help="such as User:alice; User:* is everybody",
    )
    adding.add_argument("--host", metavar="ADDRESS", action="append", help="where they come from (*)")
    adding.add_argument("--operation", choices=OPERATIONS, action="append", help="what they may do; may be repeated")
    adding.add_argument("--deny", action="store_true", help="they may not, whatever else is allowed")
    adding.add_argument("--producer", action="store_true", help="what a producer needs")
    adding.add_argument("--consumer", action="store_true", help="what a consumer needs")
    for parser in (listing, adding, removing):
        broker_options(parser)


def _resources(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    for kind in RESOURCES:
        what = kind.replace("-", " ")
        if several:
            parser.add_argument(f"--{kind}", metavar="NAME", action="append", help=f"a {what}; * is every one")
        else:
            parser.add_argument(f"--{kind}", metavar="NAME", help=f"rules about this {what}")
    parser.add_argument("--cluster", action="store_true", help="the cluster")
    parser.add_argument("--prefixed", action="store_true", help="names are the beginnings of names")
