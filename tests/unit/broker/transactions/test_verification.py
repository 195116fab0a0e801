"""A leader's questions about transactions: to the coordinator that there is now, many in one request."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.partition_appends import NOW_MS
from tests.support.rules_only_coordinator import PRODUCER, RulesOnly, ValuesAlong, open_transaction, partition
from tests.support.transactions import end, transactional_batch, write
from tests.unit.broker.context import surroundings
from tests.unit.broker.replication.replicas import replica, row, tell
from tiered.broker.partitions.partition import Appended, Partition
from tiered.broker.partitions.transactions import Verification
from tiered.broker.transactions import verification
from tiered.broker.transactions.verification import Verifications
from tiered.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    ProducerFenced,
    TieredError,
    TransactionAbortable,
)
from tiered.formats.control_record import MarkerType
from tiered.ids import TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.peer.answers import ConnectionLost
from tiered.rules.transactions.transaction_state import RAISES_EPOCH, ProducerIdAndEpoch, Transaction, TransactionState

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


async def test_without_waiting_only_what_is_open_for_this_producer_is_said_to_be(tmp_path: Path) -> None:
    rules = RulesOnly(open_transaction("pay", 1), replace(open_transaction("over", 1), state=TransactionState.EMPTY))
    older = ProducerIdAndEpoch(PRODUCER.producer_id, PRODUCER.producer_epoch - 1)
    async with verifications(tmp_path, rules, ValuesAlong()) as asks:
        assert not asks.is_open_here("pay", PRODUCER, partition(1)), "a request for it is under way"
        rules.is_at_rest = True
        assert asks.is_open_here("pay", PRODUCER, partition(1))
        for name, producer, number in (
            ("pay", PRODUCER, 2),
            ("pay", older, 1),
            ("over", PRODUCER, 1),
            ("?", PRODUCER, 1),
        ):
            assert not asks.is_open_here(name, producer, partition(number))
    assert rules.asked == 0


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


# What the leader of a partition may append


@pytest.fixture
def led(tmp_path: Path) -> Partition:
    """A partition without followers."""
    made = replica(tmp_path, 1, min_insync_replicas=1)
    tell(made, row(isr=(1,), replicas=(1,)))
    return made


class Interrupted(RulesOnly):
    """Something happens to the partition after each answer was made, and before it arrives."""

    def __init__(self, happens: Callable[[], object], times: int, *transactions: Transaction) -> None:
        super().__init__(*transactions)
        self._happens = happens
        self._times = times

    async def check_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TieredError | None]:
        found = await super().check_partitions(transactional_id, producer, partitions)
        if self.asked <= self._times:
            self._happens()
        return found


def transaction_with(led: Partition) -> Transaction:
    return replace(open_transaction("pay"), partitions=frozenset([led.topic_partition]))


def ends_the_last(led: Partition) -> Callable[[], object]:
    """The marker of a transaction before, which comes late."""
    return lambda: end(led, PRODUCER.producer_id, MarkerType.COMMIT, epoch=PRODUCER.producer_epoch, raises_epoch=True)


def first_batch(led: Partition, verified: Verification | None) -> Appended:
    data = memoryview(transactional_batch(PRODUCER.producer_id, epoch=PRODUCER.producer_epoch))
    return led.append(data, 0, len(data), acks=-1, now_ms=NOW_MS, verified=verified)


async def verified(asks: Verifications, led: Partition) -> Verification | TieredError | None:
    return (await asks.verify_appends("pay", PRODUCER, [led], adds=False))[led.topic_partition]


async def test_what_was_verified_may_be_appended(tmp_path: Path, led: Partition) -> None:
    async with verifications(tmp_path, RulesOnly(transaction_with(led)), ValuesAlong(), is_here) as asks:
        found = await verified(asks, led)
        assert isinstance(found, Verification)
        assert first_batch(led, found).base_offset == 0
        assert await verified(asks, led) is None, "its transaction is open"


async def test_a_question_that_a_marker_has_voided_is_asked_again(tmp_path: Path, led: Partition) -> None:
    rules = Interrupted(ends_the_last(led), 1, transaction_with(led))
    async with verifications(tmp_path, rules, ValuesAlong(), is_here) as asks:
        found = await verified(asks, led)
    assert rules.asked == 2
    assert isinstance(found, Verification)
    assert first_batch(led, found).base_offset == 1


async def test_where_a_transaction_ends_while_others_are_asked_about_the_coordinator_is_asked_too(
    tmp_path: Path, led: Partition
) -> None:
    """Or what comes late would open a transaction that nobody ends."""
    other = replica(tmp_path / "other", 1, min_insync_replicas=1)
    other.topic_partition = TopicPartition(led.topic_partition.topic_id, 1)
    tell(other, row(isr=(1,), replicas=(1,)))
    write(other, PRODUCER.producer_id, epoch=PRODUCER.producer_epoch)
    rules = Interrupted(
        lambda: end(other, PRODUCER.producer_id, MarkerType.ABORT, epoch=PRODUCER.producer_epoch),
        1,
        transaction_with(led),
    )
    async with verifications(tmp_path, rules, ValuesAlong(), is_here) as asks:
        found = await asks.verify_appends("pay", PRODUCER, [led, other], adds=False)
    assert isinstance(found[led.topic_partition], Verification)
    assert isinstance(found[other.topic_partition], TransactionAbortable), "it is in no open transaction any more"


async def test_what_a_marker_voids_again_and_again_may_be_tried_later(tmp_path: Path, led: Partition) -> None:
    rules = Interrupted(ends_the_last(led), 100, transaction_with(led))
    async with verifications(tmp_path, rules, ValuesAlong(), is_here) as asks:
        assert isinstance(await verified(asks, led), ConcurrentTransactions)
    assert rules.asked == verification.MOST_VOIDED


async def test_a_transaction_that_another_request_has_opened_meanwhile_needs_no_word(
    tmp_path: Path, led: Partition
) -> None:
    rules = Interrupted(
        lambda: write(led, PRODUCER.producer_id, epoch=PRODUCER.producer_epoch), 1, transaction_with(led)
    )
    async with verifications(tmp_path, rules, ValuesAlong(), is_here) as asks:
        assert await verified(asks, led) is None
    assert rules.asked == 1


async def test_a_refusal_is_the_partitions_own(tmp_path: Path, led: Partition) -> None:
    async with verifications(tmp_path, RulesOnly(open_transaction("pay")), ValuesAlong(), is_here) as asks:
        assert isinstance(await verified(asks, led), TransactionAbortable)


async def test_where_verification_is_switched_off_only_adding_asks(tmp_path: Path, led: Partition) -> None:
    rules = RulesOnly(open_transaction("pay"))
    off = {"transaction_partition_verification_enable": "false"}
    async with verifications(tmp_path, rules, ValuesAlong(), is_here, **off) as asks:
        assert isinstance(await verified(asks, led), Verification)
        assert rules.asked == 0
        found = await asks.verify_appends("pay", PRODUCER, [led], adds=True)
    assert isinstance(found[led.topic_partition], Verification)
    assert rules.transactions["pay"].partitions == {led.topic_partition}
