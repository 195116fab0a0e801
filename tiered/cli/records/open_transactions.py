"""Why `tiered consume --isolation read_committed` ended before the end of the log: which transactions are open there.

Owns these words. Asks only once records were left out, and must never end a transaction.
"""

import shlex
from collections.abc import Mapping, Sequence

from tiered.cli.groups.commands import ranges
from tiered.cli.output import in_utc, on_one_line
from tiered.cli.records.offset_range import End, end_positions
from tiered.cli.transactions.hanging import owners_of
from tiered.errors import TieredError
from tiered.peer import READ_UNCOMMITTED, Cluster, TopicMetadata, TopicPartition
from tiered.peer.topology import numbers_by_topic
from tiered.peer.transaction_admin import DescribedTransaction, OpenOnPartition, open_on_partitions


async def ends_of(
    cluster: Cluster, topic: TopicMetadata, numbers: Sequence[int], end: End, isolation_level: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The ends of partitions, and those among them that an open transaction sets: read_uncommitted would show more."""
    # Asked first: an end that grows in between is no sign of a transaction.
    log_ends = await end_positions(cluster, topic, numbers, end, READ_UNCOMMITTED)
    if isolation_level == READ_UNCOMMITTED:
        return {(topic.name, number): log_ends[number] for number in numbers}, {}
    stable_ends = await end_positions(cluster, topic, numbers, end, isolation_level)
    ends = {(topic.name, number): stable_ends[number] for number in numbers}
    return ends, {where: at for where, at in ends.items() if at < log_ends[where[1]]}


async def reasons_of_the_end(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> list[str]:
    """In words, for each transaction that is open where committed records end, which one it is and since when."""
    try:
        opened = [
            transaction for transaction in await open_on_partitions(cluster, ends) if _holds_back(transaction, ends)
        ]
        owners = await owners_of(cluster, opened)
    except TieredError as error:
        return [f"{_named(list(ends))}: an open transaction ends read_committed there; which one is not known: {error}"]
    by_producer: dict[tuple[str, int], list[OpenOnPartition]] = {}
    for transaction in opened:
        by_producer.setdefault((transaction.topic, transaction.producer_id), []).append(transaction)
    reasons = [_reason(transactions, owners.get(transactions[0])) for transactions in by_producer.values()]
    if over := sorted(ends.keys() - {(transaction.topic, transaction.partition) for transaction in opened}):
        reasons.append(f"{_named(over)}: read_committed ended at a transaction that has ended since; there is more now")
    return reasons


def _holds_back(transaction: OpenOnPartition, ends: Mapping[TopicPartition, int]) -> bool:
    return transaction.start_offset <= ends[transaction.topic, transaction.partition]


def _reason(transactions: Sequence[OpenOnPartition], owner: DescribedTransaction | None) -> str:
    newest = max(transactions, key=lambda transaction: transaction.last_write_ms)
    where = _named([(transaction.topic, transaction.partition) for transaction in transactions])
    producer = f"producer {newest.producer_id} epoch {newest.producer_epoch}"
    if owner is None:
        return (
            f"{where}: read_committed ends at an open transaction of {producer}, last written to at "
            f"{in_utc(newest.last_write_ms) or '-'}, which no transactional id that you may see has; "
            f"`tiered transactions find-hanging --topic {newest.topic}` says whether it hangs"
        )
    since = in_utc(owner.started_at_ms)
    return (
        f"{where}: read_committed ends at the open transaction of {on_one_line(owner.transactional_id)} ({producer}), "
        f"{f'open since {since}' if since else 'which is being ended'}; "
        f"`tiered transactions describe {shlex.quote(on_one_line(owner.transactional_id))}` shows it"
    )


def _named(partitions: Sequence[TopicPartition]) -> str:
    return " ".join(f"{topic}:{ranges(numbers)}" for topic, numbers in sorted(numbers_by_topic(partitions).items()))
