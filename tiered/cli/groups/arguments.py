"""The arguments of `tiered groups`: argparse and nothing else."""

import argparse

from tiered.cli.arguments import Commands, Parser, broker_options, command

STATES = ("stable", "empty", "assigning", "reconciling", "preparing-rebalance", "completing-rebalance", "dead")
KINDS = ("classic", "consumer", "share", "streams")


def add_groups(commands: "Commands[Parser]") -> None:
    """Adds `groups` with its actions."""
    groups = command(commands, "groups", None, "list, describe, configure, reset and delete consumer groups")
    actions: Commands[Parser] = groups.add_subparsers(metavar="ACTION", title="actions")

    listing = command(actions, "list", "groups.commands:run_list", "list the groups of all brokers")
    listing.add_argument("--state", metavar="STATE", action="append", choices=STATES, help=_one_of(STATES))
    listing.add_argument("--kind", metavar="KIND", action="append", choices=KINDS, help=_one_of(KINDS))
    listing.add_argument("-q", "--quiet", action="store_true", help="names alone, one a line")

    describe = command(
        actions,
        "describe",
        "groups.commands:run_describe",
        "show members, what each is assigned, offsets and how far they lag behind",
    )
    describe.add_argument("groups", metavar="GROUP", nargs="+")

    configs = command(
        actions,
        "config",
        "groups.configs:run",
        "show and change the configs of a group",
        "Of the new consumer protocol: session time-out and heartbeat interval. The group need not be there yet.",
    )
    configs.add_argument("group", metavar="GROUP")
    configs.add_argument(
        "-c", "--config", metavar="KEY=VALUE", action="append", default=[],
        help="such as consumer.session.timeout.ms=50s; may be repeated",
    )  # fmt: skip
    configs.add_argument(
        "--delete-config", metavar="KEY", action="append", default=[], help="back to the default; may be repeated"
    )

    delete = command(
        actions, "delete", "groups.commands:run_delete", "delete groups without members, with all their offsets"
    )
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="a group that does not exist is no failure")

    reset = command(
        actions,
        "reset",
        "groups.reset:run",
        "move the offsets of a group without members",
        "It shows what it would do, and does it with --execute.",
    )
    _reset_options(reset)

    for parser in (listing, describe, configs, reset, delete):
        broker_options(parser)


def _reset_options(reset: Parser) -> None:
    reset.add_argument("group", metavar="GROUP")
    which = reset.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic",
        dest="topics",
        metavar="TOPIC[:P,...]",
        action="append",
        help="a topic, or some of its partitions; may be repeated",
    )
    which.add_argument("--all-topics", action="store_true", help="each partition that the group has an offset of")
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the oldest record")
    where.add_argument("--to-latest", action="store_true", help="to the end: what comes from now on")
    where.add_argument("--to-offset", metavar="N", type=_offset, help="to this offset, or the nearest that is there")
    where.add_argument("--by", metavar="N", type=_shift, help="forward by N offsets, or back by -N")
    where.add_argument("--to-timestamp", metavar="MS", type=_offset, help="to the first record since, in ms since 1970")
    where.add_argument(
        "--to-datetime", metavar="TIME", help="the same, such as 2026-01-31T23:59:59Z (UTC unless it says otherwise)"
    )
    where.add_argument("--delete", action="store_true", help="forget the offsets: consumers begin where they are told")
    reset.add_argument("--execute", action="store_true", help="do it; without this the plan is shown")


def _one_of(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}; may be repeated (all)"


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 0 on")
    return int(text)


def _shift(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * _offset(text.removeprefix("-").removeprefix("+"))
