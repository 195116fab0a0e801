"""Offsets that wait for the end of their transaction: written under the groups' slots, and moved or deleted with the
decision.

Owns `transaction_offset`. An offset comes here only while its transaction is ongoing under its producer's id and epoch:
the producer's row is held for reading until the write is committed, so that nothing comes after the decision, which
holds it alone. Each row keeps the slot epoch and the commit number of its write: by them the decision sees whether the
group has committed something newer meanwhile, which then stays. Must never decide how a transaction ends.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Integer, bindparam, delete, func, select, tuple_

from tiered.errors import InvalidTransactionState, TieredError
from tiered.meta import group_offsets, groups
from tiered.meta.group_offsets import (
    GroupCommit,
    WriteOutcome,
    WritingCoordinator,
    check_all_newer,
    hold,
    judge,
    of_topics,
    values_of,
)
from tiered.meta.groups import GroupRow
from tiered.meta.numbered_rows import keep_newer
from tiered.meta.tables import group_offset, transaction_offset, transactional_producer
from tiered.rules.transactions.transaction_state import (
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    check_ongoing,
)

MAX_OF_TRANSACTION = 50_000
"""One SQL transaction decides all of them. More would take it longer than it may, so that it never ended."""
_KEY = tuple(transaction_offset.primary_key.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit(GroupCommit):
    """Offsets that become the group's when the producer's open transaction is committed."""

    transactional_id: str
    producer: ProducerIdAndEpoch


def pend(conn: Connection, commits: Sequence[PendingCommit], by: WritingCoordinator) -> WriteOutcome:
    """Writes the offsets of many transactions and groups. Of one transaction's to one partition the later one wins.

    A commit is refused as `group_offsets.write` does, and with InvalidProducerIdMapping, ProducerFenced,
    ConcurrentTransactions or InvalidTransactionState unless its transaction is ongoing, or when it has too many.
    """
    lost_slots = hold(conn, {each.slot for each in commits}, by)
    judged = judge(conn, commits, lost_slots, _too_many(conn, commits) | _not_ongoing(conn, commits))
    rows: dict[tuple[str, UUID, int, int], dict[str, Any]] = {}
    for number, commit in enumerate(commits):
        if number not in judged.refused:
            producer_id = commit.producer.producer_id
            for entry in commit.entries:
                key = (commit.group_id, entry.topic_id, entry.partition, producer_id)
                rows[key] = {**values_of(commit, entry, by), "producer_id": producer_id}
    groups.put(conn, (), epochs=by.slot_epochs, commit_number=by.commit_number, unless_known=judged.unknown)
    check_all_newer(len(rows), keep_newer(conn, transaction_offset, list(rows.values())))
    return WriteOutcome(refused=judged.refused)


def write(
    conn: Connection, commits: Sequence[GroupCommit], changed: Sequence[GroupRow], by: WritingCoordinator
) -> WriteOutcome:
    """As `group_offsets.write`, but that PendingCommits among the commits wait for their transactions."""
    waiting = [(number, each) for number, each in enumerate(commits) if isinstance(each, PendingCommit)]
    if not waiting:
        return group_offsets.write(conn, commits, changed, by)
    # All slots before anything else is locked.
    hold(conn, {*(each.slot for each in commits), *(each.slot for each in changed)}, by)
    plain = [(number, each) for number, each in enumerate(commits) if not isinstance(each, PendingCommit)]
    # Those that wait are judged by the generations that the groups had, as the others are.
    pended = pend(conn, [each for _, each in waiting], by).refused
    written = group_offsets.write(conn, [each for _, each in plain], changed, by).refused
    refused = {waiting[place][0]: error for place, error in pended.items()}
    return WriteOutcome(refused={**refused, **{plain[place][0]: error for place, error in written.items()}})


def check_together(conn: Connection, producer_ids: Collection[int]) -> None:
    """Raises InvalidTransactionState when one SQL transaction cannot decide all the offsets that wait for these."""
    counted = conn.execute(_COUNTED, {"producer_ids": sorted(producer_ids)})
    offsets = sum(count for _, count in counted)
    if offsets > MAX_OF_TRANSACTION:
        raise InvalidTransactionState(
            f"{offsets} offsets were sent with these transactions, and at most {MAX_OF_TRANSACTION} are committed "
            "together: send fewer, or commit in several steps"
        )


def decide(conn: Connection, committed: Collection[int], aborted: Collection[int]) -> None:
    """What waited for these producers is their groups' from now on, or is gone.

    Must run in the SQL transaction that changes their rows in `transactional_producer`, and after that. What a group
    has committed since an offset was sent stays.
    """
    if not committed and not aborted:
        return
    newest: dict[tuple[str, UUID, int], dict[str, Any]] = {}
    kept = frozenset(committed)
    for found in conn.execute(_TAKE, {"producer_ids": [*kept, *aborted]}).mappings():
        row = dict(found)
        if row["producer_id"] not in kept:
            continue
        key = (row["group_id"], row["topic_id"], row["partition"])
        if key not in newest or _order(newest[key]) < _order(row):
            newest[key] = row
    for row in newest.values():
        del row["producer_id"]
    keep_newer(conn, group_offset, list(newest.values()))


def pending(
    conn: Connection, group_id: str, *, topic_ids: Iterable[UUID] | None = None, limit: int
) -> frozenset[tuple[UUID, int]]:
    """Up to `limit` topics and partitions for which the group has an offset that waits; of all topics, or of these."""
    found = pending_of_several(conn, [group_id], topic_ids=topic_ids, limit=limit)
    return frozenset((topic_id, partition) for _, topic_id, partition in found)


def pending_of_several(
    conn: Connection, group_ids: Sequence[str], *, topic_ids: Iterable[UUID] | None = None, limit: int
) -> list[tuple[str, UUID, int]]:
    """Up to `limit` groups, topics and partitions for which an offset waits, of these groups."""
    statement, wanted = of_topics(_WAITING, _WAITING_OF_TOPICS, topic_ids)
    found = conn.execute(statement, {"group_ids": group_ids, "limit": limit, **wanted})
    return [(row.group_id, row.topic_id, row.partition) for row in found]


_WAITING = (
    select(transaction_offset.c.group_id, transaction_offset.c.topic_id, transaction_offset.c.partition)
    .distinct()
    .where(transaction_offset.c.group_id.in_(bindparam("group_ids", expanding=True)))
    .limit(bindparam("limit", type_=Integer))
)
_WAITING_OF_TOPICS = _WAITING.where(transaction_offset.c.topic_id.in_(bindparam("topic_ids", expanding=True)))


def _order(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Of two that were written together, either may come last; it is always the same one."""
    return row["slot_epoch"], row["commit_number"], row["producer_id"]


# Rows are locked in one order: whoever else deletes some never waits for this one in a circle.
_TAKE = (
    delete(transaction_offset)
    .where(
        tuple_(*_KEY).in_(
            select(*_KEY)
            .where(transaction_offset.c.producer_id.in_(bindparam("producer_ids", expanding=True)))
            .order_by(*_KEY)
            .with_for_update()
        )
    )
    .returning(*transaction_offset.c)
)
_HELD = (
    select(*(transactional_producer.c[name] for name in Transaction.__slots__ if name != "partitions"))
    .where(transactional_producer.c.transactional_id.in_(bindparam("names", expanding=True)))
    .order_by(transactional_producer.c.transactional_id)
    .with_for_update(read=True)
)


_COUNTED = (
    select(transaction_offset.c.producer_id, func.count())
    .where(transaction_offset.c.producer_id.in_(bindparam("producer_ids", expanding=True)))
    .group_by(transaction_offset.c.producer_id)
)


def _too_many(conn: Connection, commits: Sequence[PendingCommit]) -> dict[int, TieredError]:
    """Those with which more offsets would wait for their transaction than its end can decide. One for a partition that
    has one already counts again."""
    counted = conn.execute(_COUNTED, {"producer_ids": sorted({each.producer.producer_id for each in commits})})
    counts = Counter[int]()
    for producer_id, count in counted:
        counts[producer_id] = count
    refused: dict[int, TieredError] = {}
    for number, commit in enumerate(commits):
        after = counts[commit.producer.producer_id] + len(commit.entries)
        if after > MAX_OF_TRANSACTION:
            refused[number] = InvalidTransactionState(
                f"the transaction has {counts[commit.producer.producer_id]} offsets, and at most {MAX_OF_TRANSACTION} "
                "go into one: abort it, and end the next ones sooner"
            )
        else:
            counts[commit.producer.producer_id] = after
    return refused


def _not_ongoing(conn: Connection, commits: Sequence[PendingCommit]) -> dict[int, TieredError]:
    """Why some of the commits are of no open transaction. Those of the others stay open until this write is done."""
    found = conn.execute(_HELD, {"names": sorted({each.transactional_id for each in commits})}).mappings()
    known = {row["transactional_id"]: Transaction(**{**row, "state": TransactionState(row["state"])}) for row in found}
    refused: dict[int, TieredError] = {}
    for number, commit in enumerate(commits):
        try:
            check_ongoing(known.get(commit.transactional_id), commit.producer)
        except TieredError as error:
            refused[number] = error.without_frames()
    return refused
