"""The arguments of `tiered produce` and `tiered consume`: argparse and nothing else."""

import argparse

from tiered.cli.arguments import Commands, Parser, broker_options, command, number, positive

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def add_produce(commands: "Commands[Parser]") -> None:
    """Adds `produce`."""
    parser = command(
        commands, "produce", "records.produce:run", "send lines as records", "A topic that is missing is created."
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", metavar="FILE", nargs="?", help="where the lines are (stdin)")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: each line is an object as `tiered consume --json` prints it (text)",
    )
    _line_options(parser, "what stands before it is the record's key; by default there is no key")
    parser.add_argument(
        "-p", "--partition", metavar="N", type=number, help="send to this partition (by key, else to each in turn)"
    )
    parser.add_argument(
        "-H", "--header", metavar="NAME=VALUE", action="append", default=[], help="for each record; may be repeated"
    )
    parser.add_argument("-z", "--compression", choices=COMPRESSIONS, default="none", help="of batches (none)")
    parser.add_argument(
        "--acks",
        choices=("all", "-1", "1"),
        default="all",
        help="who stores it first: all in sync, or the leader (all)",
    )
    parser.add_argument(
        "--batch-records", metavar="N", type=positive, default=10_000, help="at most so many in a batch (10000)"
    )
    parser.add_argument(
        "--batch-bytes", metavar="N", type=positive, default=1 << 19, help="and about so many bytes (524288)"
    )
    parser.add_argument(
        "--linger-ms", metavar="N", type=number, default=20, help="how long a batch may wait for more lines (20)"
    )
    broker_options(parser)


def add_consume(commands: "Commands[Parser]") -> None:
    """Adds `consume`."""
    parser = command(
        commands,
        "consume",
        "records.consume:run",
        "print records as lines",
        "It ends where the log ended when it began, unless it follows.",
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="topics; ^REGEX is all that it finds")
    parser.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        default="beginning",
        help="START or START:END, where it ends before END: beginning, end (follows), N, -N for the last N of each "
        "partition, or @TIME in milliseconds since 1970, or such as @2026-01-31T23:59:59Z or @-2h (beginning)",
    )
    parser.add_argument(
        "--from-beginning", dest="offset", action="store_const", const="beginning", help="the same as -o beginning"
    )
    parser.add_argument(
        "-p", "--partition", metavar="N", type=number, action="append", help="may be repeated (all partitions)"
    )
    parser.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="as a member of this consumer group: from what it has committed, else from --offset, and commit",
    )
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed shows a transaction's records only once it was committed (read_uncommitted)",
    )
    parser.add_argument("-c", "--count", metavar="N", type=positive, help="stop after so many records")
    until = parser.add_mutually_exclusive_group()
    until.add_argument("-f", "--follow", action="store_true", help="wait for new records, until Ctrl-C")
    until.add_argument("-e", "--exit-at-end", action="store_true", help="stop at the end, the default; with -o end too")
    parser.add_argument(
        "--skip-bad-batches", action="store_true", help="step over batches that nobody can decode, and say which"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="values alone, or whole records")
    parser.add_argument(
        "--template",
        metavar="TEXT",
        help=r"print each record like this: %%t topic, %%p partition, %%o offset, %%T time, %%k key, %%s value, "
        r"%%h headers, %%K and %%S sizes, %%R the size of the value in four bytes; \n, \t and \xNN are understood; "
        "nothing is added at the end",
    )
    _line_options(parser, "print the key and this before each value")
    broker_options(parser, json_means="the same as --format json: one record a line")


def _line_options(parser: argparse.ArgumentParser, what_the_separator_does: str) -> None:
    parser.add_argument(
        "-k", "--key-separator", metavar="TEXT", help=rf"{what_the_separator_does}; \t and \n are understood"
    )
    parser.add_argument("--null", metavar="TEXT", help="what stands for null in keys, values and headers")
