"""The writer of transactions' rows, where nobody waits for what becomes of one."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.transactions.transacting import Transacting, transacting
from tiered.broker.transactions.transition_writer import TransitionWriter
from tiered.meta.transactions import TransactionChange
from tiered.rules.transactions.transaction_state import Transaction, TransactionState


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Transacting]:
    async with transacting(tmp_path) as found:
        yield found


async def test_a_refusal_for_which_nobody_waits_is_not_reported_as_a_bug(made: Transacting) -> None:
    """As where a transaction is complete, and another broker has its slot by then."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    writer = TransitionWriter(commits=made.groups.groups.offsets.commits)
    after = Transaction(
        transactional_id="payments",
        producer_id=1,
        producer_epoch=0,
        timeout_ms=60_000,
        state=TransactionState.EMPTY,
        changed_at_ms=0,
    )
    stored = writer.submit(TransactionChange(slot=0, tenure=1, before=None, after=after))
    await writer.stop()
    await asyncio.sleep(0.01)
    assert stored.done()
    del stored
    gc.collect()
    assert reported == []
