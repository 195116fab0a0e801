"""A leader's questions about transactions: to the coordinator that there is now, many in one request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.rules_only_coordinator import PRODUCER, RulesOnly, ValuesAlong, open_transaction, partition
from tests.unit.broker.context import surroundings
from tiered.broker.transactions import verification
from tiered.broker.transactions.verification import Verifications
from tiered.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    ProducerFenced,
    TransactionAbortable,
)
from tiered.meta.brokers import BrokerRow
from tiered.peer.answers import ConnectionLost
from tiered.rules.transactions.transaction_state import RAISES_EPOCH, ProducerIdAndEpoch, TransactionState

OTHER = BrokerRow(
    broker_id=2, broker_epoch=1, boot_id="b", fenced=False, heartbeat_at_ms=0, host="127.0.0.1", port=1,
    http_host=None, http_port=None, rack=None, incarnation_id=None, change_number=1,
)  # fmt: skip


def is_here(transactional_id: str) -> BrokerRow | None:
    return None


def is_elsewhere(transactional_id: str) -> BrokerRow | None:
    return OTHER


@asynccontextmanager
async def verifications(
    folder: Path,
    here: RulesOnly,
    channels: ValuesAlong,
    elsewhere: Callable[[str], BrokerRow | None] = is_elsewhere,
    **settings: str,
) -> AsyncIterator[Verifications]:
    async with surroundings(folder, **settings) as broker:
        yield Verifications(context=broker.context, here=here, coordinator_elsewhere=elsewhere, channels=channels)


async def passed(channels: ValuesAlong, count: int) -> None:
    async with asyncio.timeout(5):
        while len(channels.requests) < count:
            await asyncio.sleep(0)


@pytest.mark.parametrize("elsewhere", [is_here, is_elsewhere])
async def test_the_coordinator_says_of_each_partition_whether_it_is_in_the_open_transaction(
    tmp_path: Path, elsewhere: Callable[[str], BrokerRow | None]
) -> None:
    rules = RulesOnly(open_transaction("pay", 1))
    async with verifications(tmp_path, rules, ValuesAlong(broker_2=rules), elsewhere) as asks:
        found = await asks.verify("pay", PRODUCER, [partition(1), partition(2)], adds=False)
    assert found[partition(1)] is None
    assert isinstance(found[partition(2)], TransactionAbortable)
    assert rules.transactions["pay"].partitions == {partition(1)}


@pytest.mark.parametrize("elsewhere", [is_here, is_elsewhere])
async def test_adding_puts_the_partition_into_the_transaction_and_begins_it(
    tmp_path: Path, elsewhere: Callable[[str], BrokerRow | None]
) -> None:
    complete = replace(open_transaction("pay"), state=TransactionState.COMPLETE_COMMIT, started_at_ms=None)
    rules = RulesOnly(complete)
    async with verifications(tmp_path, rules, ValuesAlong(broker_2=rules), elsewhere) as asks:
        assert await asks.verify("pay", PRODUCER, [partition(1)], adds=True) == {partition(1): None}
    begun = rules.transactions["pay"]
    assert (begun.state, begun.protocol) == (TransactionState.ONGOING, RAISES_EPOCH)
    assert begun.partitions == {partition(1)}


@pytest.mark.parametrize("elsewhere", [is_here, is_elsewhere])
@pytest.mark.parametrize("adds", [False, True])
async def test_an_old_producer_is_told_so(
    tmp_path: Path, elsewhere: Callable[[str], BrokerRow | None], adds: bool
) -> None:
    rules = RulesOnly(open_transaction("pay", 1))
    old = ProducerIdAndEpoch(PRODUCER.producer_id, PRODUCER.producer_epoch - 1)
    async with verifications(tmp_path, rules, ValuesAlong(broker_2=rules), elsewhere) as asks:
        found = await asks.verify("pay", old, [partition(1)], adds=adds)
    assert isinstance(found[partition(1)], ProducerFenced)


async def test_an_answer_that_does_not_come_is_an_error_of_every_partition(tmp_path: Path) -> None:
    channels = ValuesAlong()
    channels.error = ConnectionLost("gone")
    async with verifications(tmp_path, RulesOnly(), channels) as asks:
        found = await asks.verify("pay", PRODUCER, [partition(1), partition(2)], adds=False)
    assert [type(found[partition(number)]) for number in (1, 2)] == [ConnectionLost, ConnectionLost]


async def test_without_a_coordinator_nothing_is_verified(tmp_path: Path) -> None:
    def nobody(transactional_id: str) -> BrokerRow | None:
        raise CoordinatorNotAvailable("nobody holds the slot")

    async with verifications(tmp_path, RulesOnly(), ValuesAlong(), nobody) as asks:
        found = await asks.verify("pay", PRODUCER, [partition(1)], adds=True)
    assert isinstance(found[partition(1)], CoordinatorNotAvailable)


async def test_what_comes_while_a_request_is_under_way_goes_together_in_the_next(tmp_path: Path) -> None:
    names = [f"id {number}" for number in range(6)]
    rules = RulesOnly(*(open_transaction(name, 1) for name in names))
    channels = ValuesAlong(broker_2=rules)
    channels.gate.clear()
    async with verifications(tmp_path, RulesOnly(), channels) as asks, asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(asks.verify(name, PRODUCER, [partition(1)], adds=False)) for name in names]
        await passed(channels, 1)
        channels.gate.set()
        assert await asyncio.gather(*asking) == [{partition(1): None}] * 6
    assert channels.requests == [names[:1], names[1:]]


async def test_a_transactional_id_is_in_a_request_once(tmp_path: Path) -> None:
    channels = ValuesAlong(broker_2=RulesOnly(open_transaction("a", 1), open_transaction("b", 1, 2)))
    channels.gate.clear()
    async with verifications(tmp_path, RulesOnly(), channels) as asks, asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(asks.verify(name, PRODUCER, [partition(number)], adds=False))
            for name, number in (("a", 1), ("b", 1), ("b", 2), ("b", 3))
        ]
        await passed(channels, 1)
        channels.gate.set()
        *good, bad = [next(iter(each.values())) for each in await asyncio.gather(*asking)]
    assert good == [None, None, None]
    assert isinstance(bad, TransactionAbortable)
    assert channels.requests == [["a"], ["b"], ["b"], ["b"]]


async def test_who_gives_up_takes_nobody_elses_answer_along(tmp_path: Path) -> None:
    channels = ValuesAlong(broker_2=RulesOnly(*(open_transaction(name, 1) for name in "abc")))
    channels.gate.clear()
    async with verifications(tmp_path, RulesOnly(), channels) as asks, asyncio.TaskGroup() as tasks:
        first, second, third = (
            tasks.create_task(asks.verify(name, PRODUCER, [partition(1)], adds=False)) for name in "abc"
        )
        await passed(channels, 1)
        first.cancel()
        await passed(channels, 2)  # The second asks, for itself and for the third.
        second.cancel()
        channels.gate.set()
        assert await third == {partition(1): None}
    assert channels.requests == [["a"], ["b", "c"], ["c"]]


async def test_only_so_many_questions_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_WAITING", 2)
    channels = ValuesAlong(broker_2=RulesOnly(*(open_transaction(name, 1) for name in "abc")))
    channels.gate.clear()
    async with verifications(tmp_path, RulesOnly(), channels) as asks, asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(asks.verify(name, PRODUCER, [partition(1)], adds=False)) for name in "ab"]
        await passed(channels, 1)
        found = await asks.verify("c", PRODUCER, [partition(1)], adds=False)
        assert isinstance(found[partition(1)], CoordinatorNotAvailable)
        channels.gate.set()
        await asyncio.gather(*waiting)
        assert await asks.verify("c", PRODUCER, [partition(1)], adds=False) == {partition(1): None}


async def test_a_batch_of_the_next_transaction_waits_a_moment_for_the_end_of_the_last(tmp_path: Path) -> None:
    ending = replace(open_transaction("pay", 1), state=TransactionState.PREPARE_COMMIT)
    rules = RulesOnly(ending)
    many_ms = {"add_partitions_to_txn_retry_backoff_max_ms": "60000", "add_partitions_to_txn_retry_backoff_ms": "1"}
    async with (
        verifications(tmp_path, rules, ValuesAlong(), is_here, **many_ms) as asks,
        asyncio.TaskGroup() as tasks,
    ):
        adding = tasks.create_task(asks.verify("pay", PRODUCER, [partition(2)], adds=True))
        async with asyncio.timeout(5):
            while rules.asked < 3:
                await asyncio.sleep(0.001)
        rules.transactions["pay"] = replace(
            ending, state=TransactionState.COMPLETE_COMMIT, partitions=frozenset(), started_at_ms=None
        )
        assert await adding == {partition(2): None}


@pytest.mark.parametrize("adds", [False, True])
async def test_a_last_transaction_that_does_not_end_is_told(tmp_path: Path, adds: bool) -> None:
    rules = RulesOnly(replace(open_transaction("pay", 1), state=TransactionState.PREPARE_COMMIT))
    at_once = {"add_partitions_to_txn_retry_backoff_max_ms": "0"}
    async with verifications(tmp_path, rules, ValuesAlong(), is_here, **at_once) as asks:
        found = await asks.verify("pay", PRODUCER, [partition(1)], adds=adds)
    assert isinstance(found[partition(1)], ConcurrentTransactions)
    assert rules.asked == 1
