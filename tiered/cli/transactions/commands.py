"""`tiered transactions list|describe`: which transactional ids there are, and what is open since when.

Owns these commands' words. Everything is asked over the Kafka protocol, so it works for any Kafka broker.
"""

import argparse
from dataclasses import asdict
from typing import Any

from tiered.cli.client.cluster import with_cluster
from tiered.cli.client.refusals import lacks, none_to_see
from tiered.cli.failure import CommandFailed
from tiered.cli.groups.commands import ranges
from tiered.cli.names import nearest_names
from tiered.cli.output import Cell, counted, describe, in_utc, on_one_line, print_json, print_table, say
from tiered.peer import BrokerError, Cluster, TopicPartition
from tiered.peer.topology import numbers_by_topic
from tiered.peer.transaction_admin import (
    DescribedTransaction,
    ListedTransaction,
    describe_open_transactions,
    describe_transaction,
    list_transactions,
)
from tiered.rules.security.acl import Operation, ResourceType
from tiered.wire.error_codes import TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_NOT_FOUND, reason

SHOWS = "`tiered transactions list` shows those that exist"


@with_cluster
async def run_list(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`transactions list`."""
    states = ["".join(map(str.capitalize, each.split("-"))) for each in arguments.state or ()]
    found = await list_transactions(cluster, states=states, open_for_ms=arguments.older_than)
    if arguments.quiet and not arguments.json:
        for each in found:
            say(on_one_line(each.transactional_id))
        return
    open_transactions = await describe_open_transactions(cluster, found)
    if arguments.json:
        print_json([_listed_fields(listed, open_transactions.get(listed.transactional_id)) for listed in found])
    elif not found:
        what = "such transactional id" if states or arguments.older_than else "transactional id"
        say(await none_to_see(cluster, what, "one is there once a producer has begun with it (init_transactions)"))
    else:
        rows = [_row(listed, open_transactions.get(listed.transactional_id)) for listed in found]
        print_table("TRANSACTIONAL-ID STATE >PRODUCER >COORDINATOR SINCE PARTITIONS", rows)


def _row(listed: ListedTransaction, opened: DescribedTransaction | None) -> list[Cell]:
    partitions = {} if opened is None else numbers_by_topic(opened.partitions)
    return [
        listed.transactional_id,
        listed.state,
        listed.producer_id,
        listed.coordinator,
        None if opened is None else in_utc(opened.started_at_ms),
        " ".join(f"{topic}:{ranges(numbers)}" for topic, numbers in partitions.items()),
    ]


def _listed_fields(listed: ListedTransaction, opened: DescribedTransaction | None) -> dict[str, Any]:
    return {
        **asdict(listed),
        "started_at_ms": None if opened is None else opened.started_at_ms,
        "partitions": [] if opened is None else _partition_fields(opened),
    }


@with_cluster
async def run_describe(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """`transactions describe`."""
    found = [_fields(await existing_transaction(cluster, name)) for name in arguments.transactional_ids]
    describe(arguments, found, _show)


async def existing_transaction(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """The transaction of this id. Raises CommandFailed when there is none."""
    try:
        return await describe_transaction(cluster, transactional_id)
    except BrokerError as error:
        why = await refused(cluster, transactional_id, error.code, Operation.DESCRIBE)
        raise CommandFailed(f"{transactional_id}: {why}") from error


async def refused(cluster: Cluster, transactional_id: str, code: int, operation: Operation) -> str:
    """Why the coordinator did nothing, in words."""
    told = None
    if code == TRANSACTIONAL_ID_NOT_FOUND:
        there = [each.transactional_id for each in await list_transactions(cluster)]
        told = f"no producer has this transactional id{nearest_names(transactional_id, there)}; {SHOWS}"
    elif code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        told = lacks(cluster, operation, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return reason(code, told)


def _fields(found: DescribedTransaction) -> dict[str, Any]:
    return {**asdict(found), "partitions": _partition_fields(found)}


def _partition_fields(transaction: DescribedTransaction) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in transaction.partitions]


def _show(found: dict[str, Any]) -> None:
    since = in_utc(found["started_at_ms"])
    about = [
        found["state"],
        f"open since {since}" if since else "nothing is open",
        f"time-out {found['timeout_ms'] / 1000:g} s",
        f"producer {found['producer_id']} epoch {found['producer_epoch']}",
        f"coordinator {found['coordinator']}",
    ]
    say(f"{found['transactional_id']}  {', '.join(about)}")
    partitions: list[TopicPartition] = [(each["topic"], each["partition"]) for each in found["partitions"]]
    if partitions:
        rows = [[topic, ranges(numbers)] for topic, numbers in numbers_by_topic(partitions).items()]
        print_table("TOPIC PARTITIONS", rows)
        say(f"\n{counted(len(partitions), 'partition')}: read_committed consumers wait there for its end")
