"""Transactions as SQL has them: who the producer of a transactional id is, and what it has open.

Owns `transactional_producer` and `transaction_partition`. A transition is written only while its slot has the epoch
that the coordinator knows, and the row is what the transition began with, read in the same tenure (R10). The decision
of a transaction moves or deletes the offsets that wait for it in the same SQL transaction, and nothing else ever does.
Must never decide what may follow what: `rules.transactions` does.

Rows are locked in the order of their ids, after the slots: no two writers ever wait for each other.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, select, text

from tiered.errors import NotCoordinator, TieredError
from tiered.ids import TopicId, TopicPartition
from tiered.meta import coordinator_slots, producer_ids, transaction_offsets
from tiered.meta.coordinator_slots import tenure_of
from tiered.meta.group_offsets import WriteOutcome, WritingCoordinator, hold
from tiered.meta.name_scopes import within
from tiered.meta.tables import IS_OPEN, transaction_commit, transaction_partition, transactional_producer
from tiered.meta.upserts import insert_for, put_on_sqlite
from tiered.rules.security.authorization import EVERYTHING, NameScope
from tiered.rules.transactions.transaction_state import (
    RAISES_EPOCH,
    PreparedTransaction,
    Transaction,
    TransactionState,
    ended,
    fenced,
)

NAMES_PER_STATEMENT = 10_000
"""SQLite and PostgreSQL take many parameters, but not any number. Rows are locked by one statement, in SQL's order."""
_IDLE = [state.value for state in TransactionState if state.is_idle]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionChange:
    """What SQL shall have in place of what it has; `before` is None for a transactional id that it does not know.

    `before` was read while the slot had this `tenure`. What another holder has done since shows in no other way: it may
    have added partitions, and left the producer and the state as they were.
    """

    slot: int
    tenure: int
    before: Transaction | None
    after: Transaction


def load(conn: Connection, transactional_id: str) -> Transaction | None:
    """The transactional id, or None."""
    found = _transactions(conn, _NAMED, {"names": [transactional_id]})
    return found[0] if found else None


def load_named(conn: Connection, names: Collection[str], *, with_partitions: bool = True) -> Mapping[str, Transaction]:
    """Those of these transactional ids that there are, NAMES_PER_STATEMENT at most."""
    assert len(names) <= NAMES_PER_STATEMENT
    found = _transactions(conn, _NAMED, {"names": sorted(names)}, with_partitions=with_partitions)
    return {each.transactional_id: each for each in found}


def load_open(conn: Connection, slots: Collection[int]) -> tuple[Transaction, ...]:
    """Those of these slots that have something open, or decided and not carried out, by id."""
    return _transactions(conn, _OPEN, {"slots": sorted(slots)})


def load_some(
    conn: Connection,
    *,
    slots: Collection[int],
    after: str,
    limit: int,
    open_only: bool = False,
    with_partitions: bool = True,
    scope: NameScope = EVERYTHING,
) -> tuple[Transaction, ...]:
    """Up to `limit` transactional ids of these slots that come after `after`, by id; `open_only` as `load_open`. Those
    that the scope holds."""
    name = transactional_producer.c.transactional_id
    statement = (_OPEN if open_only else _OF_SLOTS).where(name > after, within(conn, name, scope)).limit(limit)
    return _transactions(conn, statement, {"slots": sorted(slots)}, with_partitions=with_partitions)


def write(conn: Connection, transitions: Sequence[TransactionChange], by: WritingCoordinator) -> WriteOutcome:
    """Writes the transitions, at most one of each transactional id, and what they decide about offsets.

    One is refused with NotCoordinator (another broker took the slot, or wrote the row under a later epoch) or
    CoordinatorNotAvailable (this one holds the slot under an epoch that it does not know: take it again).
    """
    lost_slots = hold(conn, {each.slot for each in transitions}, by)
    stored = _locked(conn, [each.after.transactional_id for each in transitions])
    refused: dict[int, TieredError] = {}
    written: list[TransactionChange] = []
    for number, each in enumerate(transitions):
        error = lost_slots.get(each.slot) or _changed(
            each, stored.get(each.after.transactional_id), tenure_of(by.slot_epochs[each.slot])
        )
        if error is None:
            written.append(each)
        else:
            refused[number] = error
    _write(conn, written, by.slot_epochs)
    return WriteOutcome(refused=refused)


def _write(conn: Connection, transitions: Sequence[TransactionChange], slot_epochs: Mapping[int, int]) -> None:
    if transitions:
        ordered = sorted(transitions, key=lambda each: each.after.transactional_id)
        _put(conn, ordered, slot_epochs)
        _put_partitions(conn, ordered)
        _decide_offsets(conn, ordered)


def decide_together(
    conn: Connection, prepared: Sequence[PreparedTransaction], *, commit_key: str | None, now_ms: int
) -> bool:
    """Commits all of them under a key that was not used yet: True. Otherwise aborts what is open of them: False.

    Whoever coordinates them reads it. Their slots may be anybody's: each row is changed only as it stands, and no
    transition of its coordinator that began before can follow. The epochs rise, so that nothing late of the producers
    reaches what comes next. Raises InvalidProducerIdMapping, ProducerFenced, InvalidTransactionState or
    ConcurrentTransactions when one of them cannot be committed, or too many offsets wait for them; then none is.
    """
    commits = commit_key is not None and _is_new_key(conn, commit_key, now_ms)
    wanted = {each.transactional_id: each.producer for each in prepared}
    slots = _slots_of(conn, wanted)
    held = coordinator_slots.lock(conn, set(slots.values()))
    _locked(conn, slots)
    # Without their partitions: many have many, and this changes none.
    found = load_named(conn, slots, with_partitions=False)
    if commits:
        transaction_offsets.check_together(conn, [each.producer_id for each in found.values()])
    exhausted = sum(each.is_exhausted for each in found.values()) if commits else 0
    fresh = iter(producer_ids.allocate_block(conn, exhausted) if exhausted else ())
    changes = []
    for name, producer in wanted.items():
        now = found.get(name)
        if commits:
            fresh_id = next(fresh) if now is not None and now.is_exhausted else None
            ending = ended(
                now, producer, commits=True, protocol=RAISES_EPOCH, fresh_producer_id=fresh_id, now_ms=now_ms
            )
            before, after = ending.before, ending.after
        elif now is not None and now.state is TransactionState.ONGOING and now.told == producer:
            before, after = now, fenced(now, now_ms=now_ms)
        else:
            continue
        if after is not before:
            slot = slots[name]
            changes.append(TransactionChange(slot=slot, tenure=held[slot].tenure, before=before, after=after))
    _write(conn, changes, {slot: row.slot_epoch for slot, row in held.items()})
    return commits


def _is_new_key(conn: Connection, commit_key: str, now_ms: int) -> bool:
    statement = insert_for(conn, transaction_commit).values(commit_key=commit_key, committed_at_ms=now_ms)
    put = statement.on_conflict_do_nothing().returning(transaction_commit.c.commit_key)
    return conn.execute(put).first() is not None


def _slots_of(conn: Connection, names: Iterable[str]) -> dict[str, int]:
    wanted, found = sorted(names), dict[str, int]()
    for first in range(0, len(wanted), NAMES_PER_STATEMENT):
        rows = conn.execute(_SLOTS, {"names": wanted[first : first + NAMES_PER_STATEMENT]})
        found.update((row.transactional_id, row.slot) for row in rows)
    return found


def load_decided(conn: Connection, slots: Collection[int]) -> tuple[Transaction, ...]:
    """Those of these slots that are decided and not carried out, by id."""
    return _transactions(conn, _DECIDED, {"slots": sorted(slots)})


def remove_old_commits(conn: Connection, *, before_ms: int) -> None:
    """Keys of transactions that were committed together before that time are not remembered any more."""
    conn.execute(delete(transaction_commit).where(transaction_commit.c.committed_at_ms < before_ms))


def remove_expired(
    conn: Connection, *, slots: Collection[int], before_ms: int, limit: int, by: WritingCoordinator
) -> tuple[str, ...]:
    """Up to `limit` transactional ids of these slots that nobody has used since that time are gone: which.

    Slots that are lost by now are left alone.
    """
    lost_slots = hold(conn, slots, by)
    ours = [slot for slot in slots if slot not in lost_slots]
    idle = (
        select(transactional_producer.c.transactional_id)
        .where(
            transactional_producer.c.slot.in_(sorted(ours)),
            transactional_producer.c.state.in_(_IDLE),
            transactional_producer.c.changed_at_ms <= before_ms,
        )
        # By time, so that an index finds them: most are of today, and there may be a million.
        .order_by(transactional_producer.c.changed_at_ms)
        .limit(limit)
    )
    by_id = transactional_producer.c.transactional_id
    names = list(conn.execute(select(by_id).where(by_id.in_(idle)).order_by(by_id).with_for_update()).scalars())
    if names:
        one = delete(transactional_producer).where(transactional_producer.c.transactional_id == bindparam("of_id"))
        conn.execute(one, [{"of_id": name} for name in names])
    return tuple(names)


_ALL = select(*(transactional_producer.c[name] for name in Transaction.__slots__ if name != "partitions")).order_by(
    transactional_producer.c.transactional_id
)
_NAMED = _ALL.where(transactional_producer.c.transactional_id.in_(bindparam("names", expanding=True)))
_OF_SLOTS = _ALL.where(transactional_producer.c.slot.in_(bindparam("slots", expanding=True)))
# SQLite takes the index of what is open for its very words, and not for parameters that stand for the states.
_OPEN = _OF_SLOTS.where(text(IS_OPEN))
_DECIDED = _OPEN.where(transactional_producer.c.state != TransactionState.ONGOING.value)


def _transactions(
    conn: Connection,
    statement: Select[Any],
    parameters: Mapping[str, Sequence[Any]],
    *,
    with_partitions: bool = True,
) -> tuple[Transaction, ...]:
    rows = conn.execute(statement, parameters).mappings().all()
    partitions: dict[str, list[TopicPartition]] = {row["transactional_id"]: [] for row in rows}
    names = sorted(partitions) if with_partitions else []
    for first in range(0, len(names), NAMES_PER_STATEMENT):
        for found in conn.execute(_PARTITIONS, {"names": names[first : first + NAMES_PER_STATEMENT]}):
            partitions[found.transactional_id].append(TopicPartition(TopicId(found.topic_id), found.partition))
    return tuple(
        Transaction(
            **{
                **row,
                "state": TransactionState(row["state"]),
                "partitions": frozenset(partitions[row["transactional_id"]]),
            }
        )
        for row in rows
    )


_PARTITIONS = select(transaction_partition).where(
    transaction_partition.c.transactional_id.in_(bindparam("names", expanding=True))
)
_SLOTS = select(transactional_producer.c.transactional_id, transactional_producer.c.slot).where(
    transactional_producer.c.transactional_id.in_(bindparam("names", expanding=True))
)
_LOCKED = (
    select(
        transactional_producer.c.transactional_id,
        transactional_producer.c.producer_id,
        transactional_producer.c.producer_epoch,
        transactional_producer.c.state,
        transactional_producer.c.coordinator_epoch,
    )
    .where(transactional_producer.c.transactional_id.in_(bindparam("names", expanding=True)))
    .order_by(transactional_producer.c.transactional_id)
    .with_for_update()
)


def _locked(conn: Connection, names: Iterable[str]) -> Mapping[str, Any]:
    """The rows as they are, and as they stay until the transaction ends."""
    wanted = list(names)
    assert len(set(wanted)) == len(wanted) <= NAMES_PER_STATEMENT, "one transition of each transactional id"
    return {row.transactional_id: row for row in conn.execute(_LOCKED, {"names": wanted})}


def _changed(transition: TransactionChange, row: Any, tenure: int) -> TieredError | None:
    """Why the transition does not begin with what SQL has, or what its slot's holder has read in this tenure."""
    before = transition.before
    expected = None if before is None else (before.producer_id, before.producer_epoch, before.state.value)
    stored = None if row is None else (row.producer_id, row.producer_epoch, row.state)
    if expected == stored and transition.tenure == tenure:
        return None
    return NotCoordinator(
        f"transactional id {transition.after.transactional_id} was changed by another coordinator: find it again"
    )


def _values(transition: TransactionChange, slot_epochs: Mapping[int, int]) -> dict[str, Any]:
    after = transition.after
    return {
        "transactional_id": after.transactional_id,
        "slot": transition.slot,
        "producer_id": after.producer_id,
        "producer_epoch": after.producer_epoch,
        "last_producer_epoch": after.last_producer_epoch,
        "previous_producer_id": after.previous_producer_id,
        "next_producer_id": after.next_producer_id,
        "timeout_ms": after.timeout_ms,
        "state": after.state.value,
        "protocol": after.protocol,
        "started_at_ms": after.started_at_ms,
        "changed_at_ms": after.changed_at_ms,
        "coordinator_epoch": slot_epochs[transition.slot],
    }


_COLUMNS = tuple(column.name for column in transactional_producer.c)
_UPDATED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name != "transactional_id")
_IF_KNOWN = f"ON CONFLICT (transactional_id) DO UPDATE SET {_UPDATED}"
# One statement with an array for each column: a fraction of the time of as many statements.
_POSTGRES_UPSERT = text(
    f"""
INSERT INTO transactional_producer (transactional_id, slot, producer_id, producer_epoch, last_producer_epoch,
                                    previous_producer_id, next_producer_id, timeout_ms, state, protocol, started_at_ms,
                                    changed_at_ms, coordinator_epoch)
SELECT * FROM unnest(CAST(:transactional_id AS text[]), CAST(:slot AS int[]), CAST(:producer_id AS bigint[]),
                     CAST(:producer_epoch AS int[]), CAST(:last_producer_epoch AS int[]),
                     CAST(:previous_producer_id AS bigint[]), CAST(:next_producer_id AS bigint[]),
                     CAST(:timeout_ms AS int[]), CAST(:state AS text[]), CAST(:protocol AS int[]),
                     CAST(:started_at_ms AS bigint[]), CAST(:changed_at_ms AS bigint[]),
                     CAST(:coordinator_epoch AS bigint[]))
{_IF_KNOWN}
"""  # noqa: S608
)


def _put(conn: Connection, transitions: Sequence[TransactionChange], slot_epochs: Mapping[int, int]) -> None:
    rows = [_values(each, slot_epochs) for each in transitions]
    if conn.dialect.name == "postgresql":
        conn.execute(_POSTGRES_UPSERT, {name: [row[name] for row in rows] for name in _COLUMNS})
        return
    put_on_sqlite(conn, transactional_producer, rows, on_conflict=_IF_KNOWN)


_FORGET_PARTITIONS = delete(transaction_partition).where(
    transaction_partition.c.transactional_id.in_(bindparam("names", expanding=True))
)
_POSTGRES_PARTITIONS = text("""
INSERT INTO transaction_partition (transactional_id, topic_id, partition)
SELECT * FROM unnest(CAST(:transactional_id AS text[]), CAST(:topic_id AS uuid[]), CAST(:partition AS int[]))
""")


def _put_partitions(conn: Connection, transitions: Sequence[TransactionChange]) -> None:
    """Adds those that joined. A transaction loses them together: when it is complete, or another one has begun."""
    over: list[str] = []
    rows: list[dict[str, Any]] = []
    for each in transitions:
        name = each.after.transactional_id
        known = frozenset[TopicPartition]() if each.before is None else each.before.partitions
        if known - each.after.partitions:
            over.append(name)
            known = frozenset()
        rows += [
            {"transactional_id": name, "topic_id": added.topic_id, "partition": added.partition}
            for added in sorted(each.after.partitions - known)
        ]
    for first in range(0, len(over), NAMES_PER_STATEMENT):
        conn.execute(_FORGET_PARTITIONS, {"names": over[first : first + NAMES_PER_STATEMENT]})
    if not rows:
        return
    if conn.dialect.name == "postgresql":
        conn.execute(_POSTGRES_PARTITIONS, {name: [row[name] for row in rows] for name in rows[0]})
    else:
        put_on_sqlite(conn, transaction_partition, rows)


def _decide_offsets(conn: Connection, transitions: Sequence[TransactionChange]) -> None:
    """The offsets that wait for what is decided here: a transition that decides begins with what is open."""
    ongoing = TransactionState.ONGOING
    decided = [each for each in transitions if each.before is not None and each.before.state is ongoing]
    committed = [each.after.producer_id for each in decided if each.after.state is TransactionState.PREPARE_COMMIT]
    aborted = [each.after.producer_id for each in decided if each.after.state is TransactionState.PREPARE_ABORT]
    if committed or aborted:
        transaction_offsets.decide(conn, committed=committed, aborted=aborted)
