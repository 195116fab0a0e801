"""The arguments of `tiered topics`: argparse and nothing else."""

import argparse

from tiered.cli.arguments import Commands, Parser, broker_options, command, http_address_option, positive
from tiered.cli.moves.arguments import add_moves_of_topics


def add_topics(commands: "Commands[Parser]") -> None:
    """Adds `topics` with its actions."""
    topics = command(commands, "topics", None, "create, list, describe, alter, move and delete topics, and empty them")
    actions: Commands[Parser] = topics.add_subparsers(metavar="ACTION", title="actions")

    create = command(actions, "create", "topics.commands:run_create", "create topics")
    create.add_argument("topics", metavar="TOPIC", nargs="+")
    create.add_argument("-p", "--partitions", metavar="N", type=positive, help="partitions (the broker's default)")
    create.add_argument(
        "-r", "--replication-factor", metavar="N", type=positive, help="replicas of each (the broker's default)"
    )
    _config_option(create)
    create.add_argument("--if-not-exists", action="store_true", help="a topic that exists is no failure")
    create.add_argument("--validate-only", action="store_true", help="check everything and create nothing")

    listing = command(actions, "list", "topics.commands:run_list", "list topics")
    listing.add_argument("--internal", action="store_true", help="show internal topics as well")
    chosen = listing.add_mutually_exclusive_group()
    chosen.add_argument(
        "--under-replicated", action="store_true", help="those alone that have a partition with a replica out of sync"
    )
    chosen.add_argument(
        "--under-min-isr",
        action="store_true",
        help="those alone that have a partition with fewer replicas in sync than min.insync.replicas: acks=all is "
        "refused",
    )
    listing.add_argument("-q", "--quiet", action="store_true", help="names alone, one a line")

    describe = command(
        actions, "describe", "topics.commands:run_describe", "show partitions, leaders, offsets and configs of topics"
    )
    describe.add_argument("topics", metavar="TOPIC", nargs="+")
    describe.add_argument("--all-configs", action="store_true", help="show configs that have their default as well")
    http_address_option(describe)

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
    http_address_option(records)

    for parser in (create, listing, describe, alter, delete, records):
        broker_options(parser)
    add_moves_of_topics(actions)


def _config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a topic config, such as retention.ms=7d or segment.bytes=1GiB; may be repeated",
    )
