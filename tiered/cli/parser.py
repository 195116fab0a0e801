"""Which commands there are and what each is told: argparse and nothing else.

Owns names, options and help. Must never import what a command needs before that command is chosen: `main` loads
the module of the chosen command.
"""

import argparse
import os

import tiered
from tiered.cli.acls.arguments import add_acls
from tiered.cli.arguments import (
    Commands,
    Parser,
    broker_options,
    command,
    command_config_option,
    http_options,
    json_option,
    number,
    positive,
)
from tiered.cli.brokers.arguments import add_brokers, add_cluster, add_moves_of_topics
from tiered.cli.groups.arguments import add_groups
from tiered.cli.quotas.arguments import add_quotas
from tiered.cli.store.arguments import add_store_commands
from tiered.cli.tiering.arguments import add_retention
from tiered.cli.tiering.reconcile_arguments import add_reconcile
from tiered.cli.users.arguments import add_users
from tiered.config import add_serve_arguments

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
SHELLS = ("bash", "zsh", "fish")
AREAS = ("program", "limits", "clock", "disk", "sql", "store", "broker")
"""What `doctor` looks at, in this order."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. `run` names the chosen command's function; None when none was chosen."""
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
    add_retention(commands)
    add_reconcile(commands)
    _add_produce(commands)
    _add_consume(commands)
    add_groups(commands)
    add_brokers(commands)
    add_cluster(commands)
    add_acls(commands)
    add_quotas(commands)
    add_users(commands)
    add_store_commands(commands)
    _add_doctor(commands)
    _add_completion(commands)
    return parser


def _add_serve(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "serve",
        "serve:run",
        "run a broker",
        "It serves until SIGTERM or Ctrl-C, and prints one line that begins with `ready` once it does.",
        "Each option may also come from the environment (TIERED_KAFKA for --kafka) or from a file.",
        "Precedence: option, environment, file, default.",
    )
    add_serve_arguments(parser)


def _add_topics(commands: "Commands[Parser]") -> None:
    topics = command(commands, "topics", None, "create, list, describe, alter, move and delete topics, and empty them")
    actions: Commands[Parser] = topics.add_subparsers(metavar="ACTION", title="actions")

    create = command(actions, "create", "topics.commands:run_create", "create topics")
    create.add_argument("topics", metavar="TOPIC", nargs="+")
    create.add_argument("-p", "--partitions", metavar="N", type=positive, help="partitions (the broker's default)")
    create.add_argument(
        "--replication-factor", metavar="N", type=positive, help="replicas of each (the broker's default)"
    )
    _config_option(create)
    create.add_argument("--if-not-exists", action="store_true", help="a topic that exists is no failure")
    create.add_argument("--validate-only", action="store_true", help="check everything and create nothing")

    listing = command(actions, "list", "topics.commands:run_list", "list topics")
    listing.add_argument("--internal", action="store_true", help="show internal topics as well")
    listing.add_argument("-q", "--quiet", action="store_true", help="names alone, one a line")

    describe = command(
        actions, "describe", "topics.commands:run_describe", "show partitions, leaders, offsets and configs of topics"
    )
    describe.add_argument("topics", metavar="TOPIC", nargs="+")
    describe.add_argument("--all-configs", action="store_true", help="show configs that have their default as well")

    alter = command(actions, "alter", "topics.commands:run_alter", "change a topic's configs or add partitions")
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("-p", "--partitions", metavar="N", type=positive, help="how many it has then; never fewer")
    _config_option(alter)
    alter.add_argument(
        "--delete-config", metavar="KEY", action="append", default=[], help="back to the default; may be repeated"
    )

    delete = command(
        actions, "delete", "topics.commands:run_delete", "delete topics with all their records, hot and cold"
    )
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="a topic that does not exist is no failure")

    records = command(
        actions,
        "delete-records",
        "topics.delete_records:run",
        "delete the oldest records of a topic, hot and cold",
        "It shows what would go, and deletes it with --execute. Nothing brings it back.",
    )
    records.add_argument("topic", metavar="TOPIC[:P,...]", help="a topic, or some of its partitions")
    records.add_argument(
        "--before",
        metavar="WHERE",
        required=True,
        help="the first offset that stays; end for none; or @TIME in milliseconds since 1970 or such as "
        "@2026-01-31T23:59:59Z: up to the first record since then",
    )
    records.add_argument("--execute", action="store_true", help="do it; without this the plan is shown")

    for parser in (create, listing, describe, alter, delete, records):
        broker_options(parser)
    add_moves_of_topics(actions)


def _add_segments(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "segments",
        "tiering.segments:run",
        "show where each range of offsets is: hot, cold or both",
        "With sizes and state.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-p", "--partition", metavar="N", type=number, help="this partition alone")
    parser.add_argument("--objects", action="store_true", help="show the keys of objects as well; --json always does")
    http_options(parser)


def _add_produce(commands: "Commands[Parser]") -> None:
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


def _add_consume(commands: "Commands[Parser]") -> None:
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


def _add_doctor(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "doctor",
        "doctor.examination:run",
        "check whether this machine, the disk, SQL and the object store can carry a broker",
        "It takes the options of `tiered serve`, from the same places, and says what is wrong and what to do about it.",
        "What it writes it removes again. Exit code 1 when something would fail; a warning is none.",
    )
    add_serve_arguments(parser)
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("TIERED_BOOTSTRAP") or None,
        help="a broker that must be running (TIERED_BOOTSTRAP, else that of --kafka, which need not be)",
    )
    command_config_option(parser)
    parser.add_argument(
        "--write", action="store_true", help="produce to the running broker and read back, in a topic made for it"
    )
    parser.add_argument("--only", metavar="AREA", action="append", choices=AREAS, help=f"one of {', '.join(AREAS)}")
    json_option(parser)


def _add_completion(commands: "Commands[Parser]") -> None:
    parser = command(
        commands,
        "completion",
        "completion:run",
        "print a script that completes commands in your shell",
        "For bash: `source <(tiered completion bash)`. For zsh: `source <(tiered completion zsh)` after compinit.",
        "For fish: `tiered completion fish | source`.",
    )
    parser.add_argument("shell", choices=SHELLS)


def _line_options(parser: argparse.ArgumentParser, what_the_separator_does: str) -> None:
    parser.add_argument(
        "-k", "--key-separator", metavar="TEXT", help=rf"{what_the_separator_does}; \t and \n are understood"
    )
    parser.add_argument("--null", metavar="TEXT", help="what stands for null in keys, values and headers")


def _config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a topic config, such as retention.ms=7d or segment.bytes=1GiB; may be repeated",
    )
