"""The arguments of `tiered segments`, `explain-retention`, `snapshot`, `reconcile` and `cost`: argparse and nothing
else."""

from tiered.cli.arguments import Commands, Parser, command, duration_ms, http_options, number


def add_segments(commands: "Commands[Parser]") -> None:
    """Adds `segments`."""
    parser = command(
        commands,
        "segments",
        "tiering.segments:run_segments",
        "show where each range of offsets is: hot, cold or both",
        "With sizes and state.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-p", "--partition", metavar="N", type=number, help="this partition alone")
    parser.add_argument("--objects", action="store_true", help="show the keys of objects as well; --json always does")
    http_options(parser)


def add_retention(commands: "Commands[Parser]") -> None:
    """Adds `explain-retention`, and `snapshot` with its actions."""
    explain = command(
        commands,
        "explain-retention",
        "tiering.segments:run_explain_retention",
        "show what retention would delete now, what it keeps, and why",
        "Nothing is changed: it is the next round's decision, printed before.",
    )
    explain.add_argument("topic", metavar="TOPIC")
    explain.add_argument("-p", "--partition", metavar="N", type=number, help="this partition alone")
    explain.add_argument("--local", action="store_true", help="show the leader's local copies too; --json always does")
    http_options(explain)

    snapshot = command(
        commands, "snapshot", None, "create, list and delete snapshots: named records that retention must leave"
    )
    actions: Commands[Parser] = snapshot.add_subparsers(metavar="ACTION", title="actions")
    create = command(
        actions,
        "create",
        "tiering.snapshots:run_create",
        "hold all that a topic has now",
        "Retention and explicit deletions leave it until the snapshot is deleted or its time is over.",
    )
    create.add_argument("name", metavar="NAME", help="1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument(
        "--ttl", metavar="TIME", type=duration_ms, help="it ends after this: 90s, 45m, 12h, 30d, 8w (it is for good)"
    )
    create.add_argument("--owner", metavar="TEXT", default="", help="who it is for, in words for people")

    listing = command(actions, "list", "tiering.snapshots:run_list", "list snapshots and what they hold")
    listing.add_argument("topic", metavar="TOPIC", nargs="?", help="those of this topic alone")
    listing.add_argument("-q", "--quiet", action="store_true", help="names alone, one a line")

    delete = command(
        actions, "delete", "tiering.snapshots:run_delete", "delete snapshots: retention may take what they held"
    )
    delete.add_argument("names", metavar="SNAPSHOT", nargs="+")
    for parser in (create, listing, delete):
        http_options(parser)


def add_reconcile(commands: "Commands[Parser]") -> None:
    """Adds `reconcile`."""
    parser = command(
        commands,
        "reconcile",
        "tiering.reconcile:run",
        "show differences between disk, metadata store and object store, and what to do",
        "Brokers compare them in the background; this tells what they have found so far and asks for nothing new.",
        "Exit code 1 when anything is wrong, or a broker does not answer.",
    )
    http_options(parser)


def add_cost(commands: "Commands[Parser]") -> None:
    """Adds `cost`."""
    parser = command(
        commands,
        "cost",
        "tiering.cost:run",
        "show what each topic takes of both tiers, and what that costs",
        "By the brokers' settings tiered.price.*; reads, traffic and the brokers themselves are not in it.",
    )
    http_options(parser)
