"""The arguments of `tiered transactions`: argparse and nothing else."""

import argparse

from tiered.cli.arguments import Commands, Parser, broker_options, command, duration_ms, number

STATES = ("empty", "ongoing", "prepare-commit", "prepare-abort", "complete-commit", "complete-abort")
MAX_TIMEOUT_MS = 900_000


def add_transactions(commands: "Commands[Parser]") -> None:
    """Adds `transactions` with its actions."""
    transactions = command(
        commands, "transactions", None, "list, describe and abort transactions, and find those that hang"
    )
    actions: Commands[Parser] = transactions.add_subparsers(metavar="ACTION", title="actions")

    listing = command(actions, "list", "transactions.commands:run_list", "list the transactional ids of all brokers")
    listing.add_argument(
        "--state", metavar="STATE", action="append", choices=STATES, help=f"one of {', '.join(STATES)}; may be repeated"
    )
    listing.add_argument("-q", "--quiet", action="store_true", help="ids alone, one a line")
    listing.add_argument("--older-than", metavar="TIME", type=duration_ms, help="open for longer than this, such as 5m")

    describe = command(
        actions,
        "describe",
        "transactions.commands:run_describe",
        "show producers, since when their transactions are open, and in which partitions",
    )
    describe.add_argument("transactional_ids", metavar="TRANSACTIONAL-ID", nargs="+")

    abort = command(
        actions,
        "abort",
        "transactions.abort:run",
        "abort open transactions, and fence their producers",
        "Or, with --topic, --partition and --start-offset, one that hangs on a partition and that no coordinator ends:",
        "`tiered transactions find-hanging` shows those.",
    )
    abort.add_argument("transactional_ids", metavar="TRANSACTIONAL-ID", nargs="*")
    abort.add_argument("--topic", metavar="TOPIC", help="where it hangs")
    abort.add_argument("--partition", metavar="P", type=number, help="the partition's number")
    abort.add_argument("--start-offset", metavar="N", type=_offset, help="its first offset there")

    hanging = command(
        actions,
        "find-hanging",
        "transactions.hanging:run",
        "find transactions that are open on a partition and will not end by themselves",
        "Whoever asks must be allowed to describe every transactional id: what it cannot see seems to hang.",
    )
    hanging.add_argument(
        "--topic", dest="topics", metavar="TOPIC[:P,...]", action="append",
        help="a topic, or some of its partitions; may be repeated (all topics)",
    )  # fmt: skip
    hanging.add_argument("--broker-id", metavar="BROKER", type=number, help="partitions that this broker leads (all)")
    hanging.add_argument(
        "--max-transaction-timeout", metavar="TIME", type=duration_ms, default=MAX_TIMEOUT_MS,
        help="the brokers' transaction.max.timeout.ms (15m)",
    )  # fmt: skip

    for parser in (listing, describe, abort, hanging):
        broker_options(parser)


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 0 on")
    return int(text)
