"""Transactional producers and the offsets that wait for them, written to a catalogue."""

from sqlalchemy import Connection, insert, update

from tests.catalogue import NOW_MS
from tests.contracts.stored_groups import TOPIC
from tiered.meta import transaction_offsets
from tiered.meta.engine import Database
from tiered.meta.group_offsets import OffsetEntry, WriteOutcome, WritingCoordinator
from tiered.meta.tables import transactional_producer
from tiered.meta.transaction_offsets import PendingCommit
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch, TransactionState

PRODUCER = 1_000


def begin(
    database: Database, producer_id: int = PRODUCER, *, state: TransactionState = TransactionState.ONGOING
) -> None:
    """The transactional id `t` + producer id, at epoch 3, with a transaction in this state."""
    row = {
        "transactional_id": f"t{producer_id}",
        "slot": 0,
        "producer_id": producer_id,
        "producer_epoch": 3,
        "last_producer_epoch": -1,
        "previous_producer_id": -1,
        "next_producer_id": -1,
        "timeout_ms": 60_000,
        "state": state.value,
        "protocol": 1,
        "started_at_ms": NOW_MS,
        "changed_at_ms": NOW_MS,
        "coordinator_epoch": 1,
    }
    database.run_sync(lambda conn: conn.execute(insert(transactional_producer).values(row)))


def pending_commit(
    offset: int,
    *,
    producer_id: int = PRODUCER,
    producer_epoch: int = 3,
    transactional_id: str | None = None,
    group: str = "billing",
    generation: int = 0,
    slot: int = 0,
    partition: int = 0,
) -> PendingCommit:
    return PendingCommit(
        group_id=group,
        slot=slot,
        generation=generation,
        entries=(OffsetEntry(topic_id=TOPIC, partition=partition, offset=offset, metadata=f"at {offset}"),),
        committed_at_ms=NOW_MS + offset,
        transactional_id=transactional_id or f"t{producer_id}",
        producer=ProducerIdAndEpoch(producer_id, producer_epoch),
    )


def pend(database: Database, by: WritingCoordinator, *commits: PendingCommit) -> WriteOutcome:
    return database.run_sync(lambda conn: transaction_offsets.pend(conn, commits, by))


def decided(conn: Connection, *, committed: tuple[int, ...] = (), aborted: tuple[int, ...] = ()) -> None:
    """The decision as the transactions' coordinator writes it: the producers' rows first, then their offsets."""
    for producer_ids, state in (
        (committed, TransactionState.PREPARE_COMMIT),
        (aborted, TransactionState.PREPARE_ABORT),
    ):
        of_these = transactional_producer.c.producer_id.in_(producer_ids)
        conn.execute(update(transactional_producer).where(of_these).values(state=state.value))
    transaction_offsets.decide(conn, committed, aborted)


def decide(database: Database, *, committed: tuple[int, ...] = (), aborted: tuple[int, ...] = ()) -> None:
    database.run_sync(lambda conn: decided(conn, committed=committed, aborted=aborted))


def waiting(database: Database, group: str = "billing") -> set[int]:
    """The partitions of `TOPIC` for which the group has an offset that waits."""
    found = database.run_sync(lambda conn: transaction_offsets.pending(conn, group, limit=1000))
    return {partition for _, partition in found}
