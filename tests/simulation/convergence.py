"""After healing: when everybody serves, is in sync and has read everything; or what is still missing after too long.

Decides only when a run is over. Must never change anything, nor compare records: the checker does.
"""

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.books import Violation
from tests.simulation.clients import Consumer

if TYPE_CHECKING:
    from tests.simulation.world import World

CONVERGE_S = 60.0
LAST_MESSAGES_S = 1.0


async def converge(world: "World", work: list["asyncio.Task[None]"]) -> None:
    """Producers get their last answers, everybody serves and is in sync, everything is committed and read."""
    deadline = world.loop.time() + CONVERGE_S
    producing = [task for task, client in zip(work, world.clients, strict=True) if not isinstance(client, Consumer)]
    settled_s: float | None = None
    while True:
        why = _unsettled(world) if all(task.done() for task in producing) else "producers wait for answers"
        now = world.loop.time()
        if why is not None:
            settled_s = None
        elif settled_s is None:
            settled_s = now
        elif now - settled_s > LAST_MESSAGES_S:  # What was on its way has arrived.
            return
        if now > deadline:
            if _is_out_of_replicas(world):
                world.counts["unavailable at the end"] += 1
                return
            raise Violation(f"liveness: {CONVERGE_S:g} s after healing {why}")
        await asyncio.sleep(0.2)


def _unsettled(world: "World") -> str | None:
    for machine in world.machines.values():
        if not machine.is_serving:
            return f"{machine.name} does not serve"
    for book in world.checker.books.values():
        row = book.row
        if row is None:
            continue
        if row.leader == -1:
            return f"nobody leads {book.name}"
        current = {number for number, epoch in row.isr if world.checker.registrations[number][0] == epoch}
        if current != set(world.machines):
            return f"the ISR of {book.name} is {row.isr}, registrations are {world.checker.registrations}"
        for replica in book.replicas.values():
            if replica.end != len(book.ledger):
                return f"{replica.machine} ends {book.name} at {replica.end}, where {len(book.ledger)} is committed"
    for client in world.clients:
        if isinstance(client, Consumer) and client.position != len(world.checker.book(client.key).ledger):
            book = world.checker.book(client.key)
            return f"a consumer of {book.name} is at {client.position} of {len(book.ledger)}"
    return _open_transaction(world)


def _open_transaction(world: "World") -> str | None:
    """X4: every transaction ends, and the last stable offset is the high watermark then."""
    for sentence, what in _NOTHING_OPEN:
        found = world.sql.catalogue.driver.execute(sentence).fetchone()
        if found is not None:
            return f"{what} in SQL: {found}"
    for machine in world.machines.values():
        assert machine.process is not None
        for partition in machine.process.partitions:
            if world.checker.book(partition.topic_partition).is_deleted:
                continue
            if partition.last_stable_offset != partition.high_watermark:
                return (
                    f"X4: the last stable offset of {partition.name} on {machine.name} is "
                    f"{partition.last_stable_offset}, where {partition.high_watermark} is committed"
                )
    return None


_NOTHING_OPEN = (
    (
        "SELECT transactional_id, state FROM transactional_producer WHERE state IN "
        "('Ongoing', 'PrepareCommit', 'PrepareAbort')",
        "X4: a transaction is open",
    ),
    ("SELECT group_id, producer_id FROM transaction_offset", "X1: offsets wait for no transaction"),
)


def _is_out_of_replicas(world: "World") -> bool:
    """Whether some partition has nobody who could be elected: two losses at once, which no design survives."""
    return any(
        book.row is not None
        and book.row.leader == -1
        and all(world.checker.registrations[number][0] != epoch for number, epoch in book.row.isr)
        for book in world.checker.books.values()
    )
