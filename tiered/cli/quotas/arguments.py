"""The arguments of `tiered quotas`: argparse and nothing else."""

import argparse
import math

from tiered.cli.arguments import Commands, Parser, broker_options, command
from tiered.config.quantity import in_plain_units
from tiered.errors import InvalidConfig

KINDS = ("user", "client-id", "ip")


def add_quotas(commands: "Commands[Parser]") -> None:
    """Adds `quotas` with its actions."""
    quotas = command(commands, "quotas", None, "list, set and remove what clients may use of each broker")
    actions: Commands[Parser] = quotas.add_subparsers(metavar="ACTION", title="actions")

    listing = command(
        actions,
        "list",
        "quotas.commands:run_list",
        "list quotas, all of them or those of a user, a client id or an address",
    )
    setting = command(
        actions,
        "set",
        "quotas.commands:run_set",
        "set quotas of a user, a client id, both, or an address",
        "Users and client ids have producer_byte_rate, consumer_byte_rate, request_percentage and "
        "controller_mutation_rate, addresses connection_creation_rate.",
    )
    setting.add_argument("quotas", metavar="QUOTA=VALUE", nargs="+", type=_value)
    setting.add_argument("--validate-only", action="store_true", help="check everything and change nothing")
    removing = command(actions, "remove", "quotas.commands:run_remove", "take quotas away")
    removing.add_argument("quotas", metavar="QUOTA", nargs="+")
    for parser in (listing, setting, removing):
        for kind, what in zip(KINDS, ("a user", "a client id", "an address"), strict=True):
            which = parser.add_mutually_exclusive_group()
            which.add_argument(f"--{kind}", metavar="NAME", help=f"the name of {what}")
            which.add_argument(
                f"--{kind}-default", action="store_true", help=f"each that has no quota under its own name ({kind})"
            )
        broker_options(parser)


def _value(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        value = float(in_plain_units("quota.bytes", number) if name.endswith("_byte_rate") else number)
    except (ValueError, InvalidConfig):
        value = math.nan
    if not name or not equals or not math.isfinite(value):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no QUOTA=VALUE such as producer_byte_rate=1048576 or producer_byte_rate=1MiB"
        )
    return name, value
