"""The arguments of `tiered restore`.

Owns names, options and help, as `parser` does for the others. Must import next to nothing.
"""

import argparse
import os

from tiered.cli.arguments import Commands, Parser, command, json_option, number

MAX_PARALLEL = 64
DEFAULT_BROKERS = (1,)


def add_restore(commands: "Commands[Parser]") -> None:
    """Adds `tiered restore`."""
    parser = command(
        commands,
        "restore",
        _restore,
        "bring a cluster back from its object store, when its database and disks are gone",
        "It reads the store's checkpoints and fills an empty database with topics, segments, groups' offsets and",
        "settings. Brokers with empty data folders then serve it. Without --apply it only says what it would do, and",
        "what is lost. docs/restore.md has the whole way.",
    )
    parser.add_argument(
        "--from",
        dest="store",
        metavar="STORE_URL",
        required=True,
        help="what `tiered serve --store` takes: s3://bucket/prefix or file:///path",
    )
    parser.add_argument(
        "--meta",
        metavar="URL",
        default=os.environ.get("TIERED_META") or None,
        help="the empty database: sqlite:///FILE or postgresql://USER@HOST/DB (TIERED_META); a plan can do without",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--plan", action="store_true", help="say what would be done, the default")
    what.add_argument("--apply", action="store_true", help="do it; it may be interrupted, and done again")
    parser.add_argument(
        "--brokers",
        metavar="IDS",
        type=_ids,
        default=DEFAULT_BROKERS,
        help="the ids of the brokers that will serve it, with commas: replicas are spread over them (1)",
    )
    parser.add_argument(
        "-j", "--parallel", metavar="N", type=_parallel, default=16, help="requests to the store at once (16)"
    )
    json_option(parser)


def _ids(text: str) -> tuple[int, ...]:
    found = tuple(number(each.strip()) for each in text.split(","))
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text} names a broker twice")
    return found


def _parallel(text: str) -> int:
    found = number(text)
    if not 1 <= found <= MAX_PARALLEL:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to {MAX_PARALLEL}")
    return found


def _restore(arguments: argparse.Namespace) -> int:
    from tiered.cli import restore

    return restore.run(arguments)
