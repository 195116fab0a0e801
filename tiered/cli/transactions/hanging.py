"""`tiered transactions find-hanging`: what is open on a partition and will not end by itself.

Owns what counts as hanging. Must never end anything.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tiered.cli.client.cluster import all_topics, chosen_partitions, existing_topic, run_with_cluster
from tiered.cli.failure import EXIT_OK
from tiered.cli.groups.reset import wanted_of
from tiered.cli.output import counted, in_utc, print_json, print_table, say
from tiered.peer import BrokerError, Cluster, TopicPartition
from tiered.peer.transaction_admin import (
    DescribedTransaction,
    OpenOnPartition,
    describe_transaction,
    list_transactions,
    open_on_partitions,
)
from tiered.runtime import SystemClock
from tiered.wire.error_codes import TRANSACTIONAL_ID_NOT_FOUND

NOBODYS = "no transactional id has this producer, or its transaction is not on this partition"
TOO_LONG = "it is open for longer than any time-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """One of them; the transactional id is that of the coordinator's transaction, where one has it."""

    opened: OpenOnPartition
    transactional_id: str | None
    why: str


def run(arguments: argparse.Namespace) -> int:
    """Shows what hangs, and the command that ends it."""
    wanted = None if arguments.topics is None else wanted_of(arguments.topics)

    async def act(cluster: Cluster) -> int:
        topics = (
            await all_topics(cluster)
            if wanted is None
            else [await existing_topic(cluster, name) for name in sorted(wanted)]
        )
        partitions = [
            (topic.name, each.partition)
            for topic in topics
            for each in topic.partitions
            if each.partition in chosen_partitions(topic, None if wanted is None else wanted[topic.name])
            and arguments.broker_id in (None, each.leader_id)
        ]
        hanging, others = await _open(cluster, partitions, arguments.max_transaction_timeout)
        _tell(arguments, hanging)
        if others and not arguments.json:
            _show_others(others)
        return EXIT_OK

    return run_with_cluster(arguments, act)


async def _open(
    cluster: Cluster, partitions: list[TopicPartition], max_timeout_ms: int
) -> tuple[list[Hanging], dict[OpenOnPartition, DescribedTransaction]]:
    """What hangs on the partitions, and the other transactions that are open there: their coordinator ends them."""
    now_ms = SystemClock().now_ms()
    opened = await open_on_partitions(cluster, partitions)
    owners = await owners_of(cluster, opened)
    found = []
    for each in opened:
        owner = owners.get(each)
        if owner is None:
            found.append(Hanging(opened=each, transactional_id=None, why=NOBODYS))
        elif owner.started_at_ms is not None and now_ms - owner.started_at_ms > max_timeout_ms:
            found.append(Hanging(opened=each, transactional_id=owner.transactional_id, why=TOO_LONG))
    hanging = {transaction.opened for transaction in found}
    others = {opened: owner for opened, owner in owners.items() if opened not in hanging}
    if not found:
        return [], others
    # What ended while we asked around hangs no more.
    still = await open_on_partitions(cluster, [(each.opened.topic, each.opened.partition) for each in found])
    there = {(each.topic, each.partition, each.start_offset) for each in still}
    return [
        each for each in found if (each.opened.topic, each.opened.partition, each.opened.start_offset) in there
    ], others


async def owners_of(cluster: Cluster, opened: Sequence[OpenOnPartition]) -> dict[OpenOnPartition, DescribedTransaction]:
    """Of each the transaction that has its producer and its partition: the coordinator ends it. Those that nobody will
    end are not in it."""
    producer_ids = sorted({each.producer_id for each in opened})
    if not producer_ids:
        return {}
    by_producer: dict[int, DescribedTransaction] = {}
    for listed in await list_transactions(cluster, producer_ids=producer_ids):
        try:
            found = await describe_transaction(cluster, listed.transactional_id)
        except BrokerError as error:
            if error.code != TRANSACTIONAL_ID_NOT_FOUND:
                raise
        else:
            by_producer[found.producer_id] = found
    return {
        each: owner
        for each in opened
        if (owner := by_producer.get(each.producer_id)) is not None and (each.topic, each.partition) in owner.partitions
    }


def _tell(arguments: argparse.Namespace, found: list[Hanging]) -> None:
    if arguments.json:
        print_json(
            [{**asdict(each.opened), "transactional_id": each.transactional_id, "why": each.why} for each in found]
        )
        return
    if not found:
        say("nothing hangs")
        return
    print_table(
        "TOPIC >PARTITION >START-OFFSET >PRODUCER LAST-WRITE TRANSACTIONAL-ID",
        [
            [
                each.opened.topic,
                each.opened.partition,
                each.opened.start_offset,
                each.opened.producer_id,
                in_utc(each.opened.last_write_ms),
                each.transactional_id,
            ]
            for each in found
        ],
    )
    say(f"\n{counted(len(found), 'transaction')} will not end without you:")
    for why in dict.fromkeys(each.why for each in found):
        say(f"{why}:")
        for command in dict.fromkeys(_ends(each) for each in found if each.why == why):
            say(f"  {command}")


def _show_others(others: Mapping[OpenOnPartition, DescribedTransaction]) -> None:
    say(f"\n{counted(len(others), 'other transaction')} open on a partition: the producer or the time-out ends it.")
    print_table(
        "TOPIC >PARTITION >START-OFFSET >PRODUCER SINCE TRANSACTIONAL-ID",
        [
            [
                opened.topic,
                opened.partition,
                opened.start_offset,
                opened.producer_id,
                in_utc(owner.started_at_ms),
                owner.transactional_id,
            ]
            for opened, owner in others.items()
        ],
    )


def _ends(each: Hanging) -> str:
    if each.transactional_id is not None:
        return f"tiered transactions abort {shlex.quote(each.transactional_id)}"
    opened = each.opened
    return (
        f"tiered transactions abort --topic {opened.topic} --partition {opened.partition} "
        f"--start-offset {opened.start_offset}"
    )
