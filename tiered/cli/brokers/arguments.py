"""The arguments of `tiered brokers`: argparse and nothing else."""

from tiered.cli.arguments import Commands, Parser, broker_options, command, http_address_option, number
from tiered.cli.moves.arguments import broker_ids, move_options


def add_brokers(commands: "Commands[Parser]") -> None:
    """Adds `brokers` with its actions."""
    brokers = command(commands, "brokers", None, "list, describe, configure, drain, balance and remove brokers")
    actions: Commands[Parser] = brokers.add_subparsers(metavar="ACTION", title="actions")

    listing = command(
        actions, "list", "brokers.commands:run_list", "list the brokers, what they lead and whether they are in service"
    )
    listing.add_argument("-q", "--quiet", action="store_true", help="numbers alone, one a line")
    http_address_option(listing)

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
    drain.add_argument("--to", metavar="N,...", type=broker_ids, help="move to these alone (all others in service)")
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
