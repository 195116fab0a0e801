"""Which commands there are and what each is told: argparse and nothing else.

Owns names, options and help. Must never import what a command needs before that command is chosen: the
functions at the end are where a command's module is first loaded.
"""

import argparse
import os
from collections.abc import Callable
from typing import NoReturn

import tiered
from tiered.config import add_serve_arguments

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_HTTP = "http://127.0.0.1:8080"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_INT32 = 2**31 - 1


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes no abbreviations, for they break when options come, and that names its help."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")


Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse gives the type of its own result no public name.
Run = Callable[[argparse.Namespace], int]


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. The chosen command's function stands in `run`; None when none was chosen."""
    parser = Parser(
        prog="tiered",
        description="A Kafka-compatible log: hot tail on local disk, cold past in an object store.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage. `tiered COMMAND --help` tells more.",
    )
    parser.add_argument("--version", action="version", version=f"tiered {tiered.__version__}")
    parser.set_defaults(run=None, parser=None)
    commands: Commands[Parser] = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_serve(commands)
    _add_topics(commands)
    _add_segments(commands)
    _add_produce(commands)
    _add_consume(commands)
    return parser


def _command(commands: "Commands[Parser]", name: str, run: Run | None, what: str, *more: str) -> Parser:
    """A command whose help begins with `what` and goes on with `more`."""
    parser = commands.add_parser(name, help=what, description=" ".join([f"{what[0].upper()}{what[1:]}.", *more]))
    parser.set_defaults(run=run, parser=parser)
    return parser


def _add_serve(commands: "Commands[Parser]") -> None:
    parser = _command(
        commands,
        "serve",
        _serve,
        "run a broker",
        "It serves until SIGTERM or Ctrl-C, and prints one line that begins with `ready` once it does.",
        "Each option may also come from the environment (TIERED_KAFKA for --kafka) or from a file.",
        "Precedence: option, environment, file, default.",
    )
    add_serve_arguments(parser)


def _add_topics(commands: "Commands[Parser]") -> None:
    topics = _command(commands, "topics", None, "create, list, describe, alter and delete topics")
    actions: Commands[Parser] = topics.add_subparsers(metavar="ACTION", title="actions")

    create = _command(actions, "create", _topics_create, "create topics")
    create.add_argument("topics", metavar="TOPIC", nargs="+")
    create.add_argument("-p", "--partitions", metavar="N", type=_positive, help="partitions (the broker's default)")
    create.add_argument(
        "--replication-factor", metavar="N", type=_positive, help="replicas of each (the broker's default)"
    )
    _config_option(create)
    create.add_argument("--if-not-exists", action="store_true", help="a topic that exists is no failure")
    create.add_argument("--validate-only", action="store_true", help="check everything and create nothing")

    listing = _command(actions, "list", _topics_list, "list topics")
    listing.add_argument("--internal", action="store_true", help="show internal topics as well")
    listing.add_argument("-q", "--quiet", action="store_true", help="names alone, one a line")

    describe = _command(
        actions, "describe", _topics_describe, "show partitions, leaders, offsets and configs of topics"
    )
    describe.add_argument("topics", metavar="TOPIC", nargs="+")
    describe.add_argument("--all-configs", action="store_true", help="show configs that have their default as well")

    alter = _command(actions, "alter", _topics_alter, "change a topic's configs or add partitions")
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("-p", "--partitions", metavar="N", type=_positive, help="how many it has then; never fewer")
    _config_option(alter)
    alter.add_argument(
        "--delete-config", metavar="KEY", action="append", default=[], help="back to the default; may be repeated"
    )

    delete = _command(actions, "delete", _topics_delete, "delete topics with all their records, hot and cold")
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="a topic that does not exist is no failure")

    for parser in (create, listing, describe, alter, delete):
        _broker_options(parser)


def _add_segments(commands: "Commands[Parser]") -> None:
    parser = _command(
        commands,
        "segments",
        _segments,
        "show where each range of offsets is: hot, cold or both",
        "With sizes and state.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-p", "--partition", metavar="N", type=_number, help="this partition alone")
    parser.add_argument("--objects", action="store_true", help="show the keys of objects as well; --json always does")
    parser.add_argument(
        "--http",
        metavar="URL",
        default=os.environ.get("TIERED_HTTP") or DEFAULT_HTTP,
        help=f"a broker's HTTP address (TIERED_HTTP, else {DEFAULT_HTTP})",
    )
    _json_option(parser)


def _add_produce(commands: "Commands[Parser]") -> None:
    parser = _command(commands, "produce", _produce, "send lines as records", "A topic that is missing is created.")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", metavar="FILE", nargs="?", help="where the lines are (stdin)")
    _line_options(parser, "what stands before it is the record's key; by default there is no key")
    parser.add_argument(
        "-p", "--partition", metavar="N", type=_number, help="send to this partition (by key, else to each in turn)"
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
        "--batch-records", metavar="N", type=_positive, default=10_000, help="at most so many in a batch (10000)"
    )
    parser.add_argument(
        "--batch-bytes", metavar="N", type=_positive, default=1 << 19, help="and about so many bytes (524288)"
    )
    parser.add_argument(
        "--linger-ms", metavar="N", type=_number, default=20, help="how long a batch may wait for more lines (20)"
    )
    _broker_options(parser)


def _add_consume(commands: "Commands[Parser]") -> None:
    parser = _command(
        commands,
        "consume",
        _consume,
        "print records as lines",
        "It ends where the log ended when it began, unless it follows.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        default="beginning",
        help="beginning, end (follows), N, -N for the last N of each partition, or @TIME in milliseconds since 1970 or "
        "such as @2026-01-31T23:59:59Z (beginning)",
    )
    parser.add_argument(
        "--from-beginning", dest="offset", action="store_const", const="beginning", help="the same as -o beginning"
    )
    parser.add_argument(
        "-p", "--partition", metavar="N", type=_number, action="append", help="may be repeated (all partitions)"
    )
    parser.add_argument("-c", "--count", metavar="N", type=_positive, help="stop after so many records")
    until = parser.add_mutually_exclusive_group()
    until.add_argument("-f", "--follow", action="store_true", help="wait for new records, until Ctrl-C")
    until.add_argument("-e", "--exit-at-end", action="store_true", help="stop at the end, the default; with -o end too")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="values alone, or whole records")
    _line_options(parser, "print the key and this before each value")
    _broker_options(parser, json_means="the same as --format json: one record a line")


def _line_options(parser: argparse.ArgumentParser, what_the_separator_does: str) -> None:
    parser.add_argument(
        "-k", "--key-separator", metavar="TEXT", help=rf"{what_the_separator_does}; \t and \n are understood"
    )
    parser.add_argument("--null", metavar="TEXT", help="what stands for a key or value that is null")


def _config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a topic config, such as retention.ms=86400000; may be repeated",
    )


def _broker_options(parser: argparse.ArgumentParser, json_means: str = "print JSON") -> None:
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("TIERED_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        help=f"a broker; several with commas (TIERED_BOOTSTRAP, else {DEFAULT_BOOTSTRAP})",
    )
    _json_option(parser, json_means)


def _json_option(parser: argparse.ArgumentParser, means: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=means)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:11]) > MAX_INT32:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 0 to {MAX_INT32}")
    return int(text)


def _positive(text: str) -> int:
    if (number := _number(text)) == 0:
        raise argparse.ArgumentTypeError("0 is too few")
    return number


def _serve(arguments: argparse.Namespace) -> int:
    from tiered.cli import serve

    return serve.run(arguments)


def _topics_create(arguments: argparse.Namespace) -> int:
    from tiered.cli import topics

    return topics.run_create(arguments)


def _topics_list(arguments: argparse.Namespace) -> int:
    from tiered.cli import topics

    return topics.run_list(arguments)


def _topics_describe(arguments: argparse.Namespace) -> int:
    from tiered.cli import topics

    return topics.run_describe(arguments)


def _topics_alter(arguments: argparse.Namespace) -> int:
    from tiered.cli import topics

    return topics.run_alter(arguments)


def _topics_delete(arguments: argparse.Namespace) -> int:
    from tiered.cli import topics

    return topics.run_delete(arguments)


def _segments(arguments: argparse.Namespace) -> int:
    from tiered.cli import segments

    return segments.run(arguments)


def _produce(arguments: argparse.Namespace) -> int:
    from tiered.cli import produce

    return produce.run(arguments)


def _consume(arguments: argparse.Namespace) -> int:
    from tiered.cli import consume

    return consume.run(arguments)
