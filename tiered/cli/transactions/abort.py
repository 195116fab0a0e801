"""`tiered transactions abort`: ends a transaction through its coordinator, or one that hangs on a partition.

Owns these words. Must never end on one partition what a coordinator still decides about: the others would not hear.
"""

import argparse
import asyncio

from tiered.cli.client.cluster import chosen_partitions, existing_topic, run_with_cluster
from tiered.cli.client.refusals import lacks
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.output import report
from tiered.cli.transactions.commands import existing_transaction, refused
from tiered.cli.transactions.hanging import owners_of
from tiered.peer import BrokerError, Cluster
from tiered.peer.transaction_admin import abort_on_partition, describe_transaction, fence, open_on_partitions
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.runtime import SystemClock
from tiered.wire.error_codes import CLUSTER_AUTHORIZATION_FAILED, CONCURRENT_TRANSACTIONS, NONE

PATIENCE_MS = 30_000.0
LOOK_AGAIN_MS = 100.0


def run(arguments: argparse.Namespace) -> int:
    """`transactions abort`."""
    names = list(dict.fromkeys(arguments.transactional_ids))
    hanging = (arguments.topic, arguments.partition, arguments.start_offset)
    if bool(names) == any(each is not None for each in hanging):
        raise UsageError("name transactional ids, or --topic, --partition and --start-offset for one that hangs")
    if not names and None in hanging:
        raise UsageError("one that hangs is named by --topic, --partition and --start-offset together")

    async def by_id(cluster: Cluster) -> int:
        outcomes: list[tuple[str, bool, str | None]] = []
        for name in names:
            try:
                outcomes.append((name, await _aborted(cluster, name), None))
            except CommandFailed as error:
                outcomes.append((name, False, str(error).removeprefix(f"{name}: ")))
        return report(arguments, "transactional_id", outcomes, "aborted")

    async def on_partition(cluster: Cluster) -> int:
        await _end_on_partition(cluster, *hanging)
        where = f"{arguments.topic}-{arguments.partition}"
        done = f"goes on: what was open there since offset {arguments.start_offset} is aborted"
        return report(arguments, "partition", [(where, True, None)], done)

    return run_with_cluster(arguments, by_id if names else on_partition)


async def _aborted(cluster: Cluster, name: str) -> bool:
    """Whether something was open. Raises CommandFailed."""
    found = await existing_transaction(cluster, name)
    if not found.is_open:
        return False
    # Once: a producer that takes the id afterwards is somebody else's.
    code = await fence(cluster, name, found.timeout_ms)
    if code not in (NONE, CONCURRENT_TRANSACTIONS):
        raise CommandFailed(await refused(cluster, name, code, Operation.WRITE))
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + PATIENCE_MS
    while (await describe_transaction(cluster, name)).is_being_aborted:
        if clock.monotonic_ms() > deadline_ms:
            raise CommandFailed(
                "it is aborted, and some of its partitions have not heard of it yet: have they leaders?"
            )
        await asyncio.sleep(LOOK_AGAIN_MS / 1000)
    return True


async def _end_on_partition(cluster: Cluster, name: str, number: int, start_offset: int) -> None:
    chosen_partitions(await existing_topic(cluster, name), [number])
    found = await open_on_partitions(cluster, [(name, number)])
    opened = next((each for each in found if each.start_offset == start_offset), None)
    if opened is None:
        raise CommandFailed(
            f"{name}-{number} has no open transaction that begins at offset {start_offset}; "
            f"`tiered transactions find-hanging --topic {name}` shows those that hang"
        )
    owner = (await owners_of(cluster, [opened])).get(opened)
    if owner is not None:
        raise CommandFailed(
            f"this is the transaction of {owner.transactional_id}; its coordinator ends it everywhere: "
            f"`tiered transactions abort {owner.transactional_id}`"
        )
    try:
        await abort_on_partition(cluster, opened)
    except BrokerError as error:
        if error.code != CLUSTER_AUTHORIZATION_FAILED:
            raise
        raise CommandFailed(lacks(cluster, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)) from error
