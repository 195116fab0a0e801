"""Whether a transaction waits for another one on PostgreSQL."""

import asyncio

from sqlalchemy import text

from tiered.meta.engine import Database


def waits_for_a_lock(database: Database) -> bool:
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return bool(database.run_sync(lambda conn: conn.execute(query).scalar_one()))


async def until_blocked(database: Database) -> None:
    async with asyncio.timeout(10):
        while not await asyncio.to_thread(waits_for_a_lock, database):
            await asyncio.sleep(0.01)
