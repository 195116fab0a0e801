"""The arguments of the commands that work on an object store by themselves, without a broker.

Owns names, options and help, as `parser` does for the others. Must import next to nothing.
"""

import argparse
import os
import re
from pathlib import Path

from tiered.cli.arguments import Commands, Parser, command, json_option, number
from tiered.cli.moves.arguments import broker_ids

MAX_PARALLEL = 64
DEFAULT_BROKERS = (1,)
_DIGEST = re.compile(r"[0-9a-f]{40}\Z")


def add_store_commands(commands: "Commands[Parser]") -> None:
    """Adds `tiered verify`, `tiered restore` and `tiered disk-report`."""
    _add_verify(commands)
    _add_restore(commands)
    _add_disk_report(commands)


def _add_verify(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "verify",
        "store.verify:run",
        "check everything in an object store, from the store alone",
        "It reads the checkpoints, then every chunk's SHA-256, every batch's CRC, the offsets and the chain of roots.",
        "It asks no broker and no database, and writes nothing to the store.",
        "Exit code 0 when all of it is whole, 1 when something is bad or could not be read, 2 usage.",
    )
    parser.add_argument(
        "store",
        metavar="STORE_URL",
        type=_store_url,
        help="what `tiered serve --store` takes: s3://bucket/prefix or file:///path; a folder's path will do",
    )
    parser.add_argument("-t", "--topic", metavar="TOPIC", action="append", help="this topic alone; may be repeated")
    parser.add_argument(
        "--fraction", metavar="F", type=fraction, default=1.0, help="read this share of all chunks, such as 0.1 (1)"
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=number,
        default=0,
        help="which share: with --fraction 0.1 the seeds 0 to 9 together are everything (0)",
    )
    parser.add_argument(
        "--progress-file", metavar="FILE", help="keep there what was found good; the same command then goes on from it"
    )
    parser.add_argument(
        "-j", "--parallel", metavar="N", type=_parallel, default=4, help="segments that are read at once (4)"
    )
    parser.add_argument(
        "--orphans", action="store_true", help="list the store as well, and tell of objects that no checkpoint names"
    )
    json_option(parser)


def _add_restore(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "restore",
        "store.restore:run",
        "bring a cluster back from its object store and its brokers' disks, when its database is gone",
        "It reads the store's checkpoints and fills an empty database with topics, segments, groups' offsets and",
        "settings. With --disk, what was not uploaded yet comes back too; brokers whose disks are not given begin with",
        "empty data folders. Without --apply it only says what it would do, and what is lost. docs/restore.md has the",
        "whole way.",
    )
    parser.add_argument(
        "--from",
        dest="store",
        metavar="STORE_URL",
        type=_store_url,
        required=True,
        help="what `tiered serve --store` takes: s3://bucket/prefix or file:///path; a folder's path will do",
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
        "--take-from-live-brokers",
        action="store_true",
        help="take the store over from brokers that still use it; what they take from producers from then on is lost",
    )
    parser.add_argument(
        "--brokers",
        metavar="IDS",
        type=broker_ids,
        help="the ids of the brokers that will serve it, with commas: replicas are spread over them (1, or those whose "
        "disks are given)",
    )
    parser.add_argument(
        "--disk",
        dest="disks",
        metavar="PATH",
        action="append",
        default=[],
        help="take what is only on a broker's disk along: its data folder, or a file that `tiered disk-report` has "
        "made of it; once for each broker, which then starts with that folder",
    )
    parser.add_argument(
        "--former-meta",
        metavar="URL",
        help="take users and their passwords, quotas, access rules and newer offsets of groups from this older "
        "database of the cluster, which no broker uses any more; it is never changed",
    )
    parser.add_argument(
        "--leave-out",
        metavar="TOPIC",
        action="append",
        default=[],
        help="bring the cluster back without this topic, which cannot be restored; may be repeated",
    )
    parser.add_argument(
        "--accept-rights",
        metavar="DIGEST",
        type=_rights_digest,
        nargs="?",
        const="",
        help="bring back the access rules, and the settings that give rights, whose digest the plan has printed",
    )
    parser.add_argument(
        "-j", "--parallel", metavar="N", type=_parallel, default=16, help="requests to the store at once (16)"
    )
    json_option(parser)


def _add_disk_report(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "disk-report",
        "store.disk_report:run",
        "write down what is on a stopped broker's disk, for a restore on another machine",
        "The report is a JSON file on standard output: which logs there are and where they end, no records.",
        "`tiered restore --disk FILE` takes it. docs/restore.md has the whole way.",
    )
    parser.add_argument("data", metavar="DIR", help="the broker's data folder, as `tiered serve --data` has it")


def _store_url(text: str) -> str:
    """The URL of a folder whose path is given; any other text as it is."""
    folder = Path(text).expanduser().absolute()
    is_path = ":" not in text and (text.startswith(("/", ".", "~")) or folder.is_dir())
    return folder.as_uri() if is_path else text


def fraction(text: str) -> float:
    """The share that an option's text means, above 0 and at most 1. Raises argparse's error."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 < found <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is no share: it must be above 0 and at most 1")
    return found


def _rights_digest(text: str) -> str:
    """Raises argparse's error, which says what to do without one."""
    if not _DIGEST.match(text):
        raise argparse.ArgumentTypeError(
            "it needs the digest of what is accepted: run the plan, look at its list of access rules and settings that "
            "give rights, and give the 40 digits that it prints below"
        )
    return text


def _parallel(text: str) -> int:
    found = number(text)
    if not 1 <= found <= MAX_PARALLEL:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to {MAX_PARALLEL}")
    return found
