"""Transactions from outside: list and describe them, see what is open on partitions, end one by force. For tools.

Owns how each request is put, and what its answer means. Keeps nothing, and must never decide what hangs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tiered.peer.answers import UnreadableTopic, broker_error, require_success, the_only
from tiered.peer.cluster import Cluster
from tiered.peer.coordinator import Coordinator
from tiered.peer.topology import TopicPartition, numbers_by_topic
from tiered.wire.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

INIT_PRODUCER_ID, WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 22, 27, 61, 65, 66
NO_DURATION = -1
_FIRST_WITH_DURATION = 1
_KEEPS_EPOCH = 1
_AT_ONCE = 1_000
"""Partitions in one question about their producers, and transactional ids in one about their transactions."""
_IDLE_STATES = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """One transactional id of a list. `state` is Kafka's name."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    """A transactional id with its transaction; `started_at_ms` is None while none is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        return self.state == "Ongoing"

    @property
    def is_being_aborted(self) -> bool:
        return self.state in ("PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOnPartition:
    """A transaction that is open on a partition, as its leader knows it; -1 for what that does not know."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_write_ms: int


async def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    open_for_ms: int | None = None,
) -> list[ListedTransaction]:
    """The transactional ids of all brokers, by id: each broker knows those that it coordinates.

    Raises UnsupportedVersion where a broker is too old for `open_for_ms`.
    """
    found: dict[str, ListedTransaction] = {}
    for broker_id in sorted((await cluster.metadata([])).brokers):
        answer = await cluster.request(
            LIST_TRANSACTIONS,
            lambda make: make.ListTransactionsRequest(
                state_filters=tuple(states),
                producer_id_filters=tuple(producer_ids),
                duration_filter=NO_DURATION if open_for_ms is None else open_for_ms,
                transactional_id_pattern=None,
            ),
            broker_id=broker_id,
            at_least=0 if open_for_ms is None else _FIRST_WITH_DURATION,
        )
        require_success(answer, f"broker {broker_id} did not list its transactions")
        for each in answer.transaction_states:
            found[each.transactional_id] = ListedTransaction(
                transactional_id=each.transactional_id,
                state=each.transaction_state,
                producer_id=each.producer_id,
                coordinator=broker_id,
            )
    return [found[name] for name in sorted(found)]


async def describe_transaction(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """As its coordinator has it. Raises BrokerError, also where there is none."""
    async with Coordinator(cluster, transactional_id, of_transactions=True) as coordinator:
        answer = await coordinator.ask(
            DESCRIBE_TRANSACTIONS,
            lambda make: make.DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
            lambda told: [each.error_code for each in told.transaction_states],
        )
        found = the_only(answer.transaction_states, "transactional id")
        require_success(found, f"transactional id {transactional_id} was not described")
        return _described(found, coordinator.broker_id)


async def describe_open_transactions(
    cluster: Cluster, listed: Iterable[ListedTransaction]
) -> dict[str, DescribedTransaction]:
    """Those of the listed transactional ids whose transaction is open or is being ended, by id.

    One request to each coordinator for many ids. What has moved or has gone since it was listed is left out.
    """
    by_coordinator: dict[int, list[str]] = {}
    for row in listed:
        if row.state not in _IDLE_STATES:
            by_coordinator.setdefault(row.coordinator, []).append(row.transactional_id)
    described: dict[str, DescribedTransaction] = {}
    for broker_id, names in by_coordinator.items():
        for start in range(0, len(names), _AT_ONCE):
            for transaction in await _described_by(cluster, broker_id, names[start : start + _AT_ONCE]):
                described[transaction.transactional_id] = transaction
    return described


async def _described_by(cluster: Cluster, broker_id: int, names: Sequence[str]) -> list[DescribedTransaction]:
    answer = await cluster.request(
        DESCRIBE_TRANSACTIONS,
        lambda make: make.DescribeTransactionsRequest(transactional_ids=tuple(names)),
        broker_id=broker_id,
    )
    return [_described(state, broker_id) for state in answer.transaction_states if state.error_code == NONE]


def _described(state: Any, coordinator: int) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id=state.transactional_id,
        coordinator=coordinator,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout,
        started_at_ms=state.transaction_start_time if state.transaction_start_time >= 0 else None,
        partitions=tuple(sorted((topic.topic, number) for topic in state.topics for number in topic.partitions)),
    )


async def fence(cluster: Cluster, transactional_id: str, timeout_ms: int) -> int:
    """Takes the transactional id from its producer, by which its open transaction is aborted. The error code: 0 when
    nothing was open, CONCURRENT_TRANSACTIONS when something is being ended now."""
    async with Coordinator(cluster, transactional_id, of_transactions=True) as coordinator:
        answer = await coordinator.ask(
            INIT_PRODUCER_ID,
            lambda make: make.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout=timeout_ms),
            lambda told: [told.error_code],
        )
    return int(answer.error_code)


async def open_on_partitions(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[OpenOnPartition]:
    """The transactions that are open there. Partitions without a leader are left out. Raises BrokerError,
    which is UnreadableTopic where a topic may not be read."""
    wanted = list(dict.fromkeys(partitions))
    described = (await cluster.metadata(sorted({topic for topic, _ in wanted}))).topics if wanted else {}
    leaders = {(name, each.partition): each.leader_id for name in described for each in described[name].partitions}
    found: list[OpenOnPartition] = []
    for leader_id in sorted({leaders[each] for each in wanted if leaders.get(each, -1) >= 0}):
        led = [each for each in wanted if leaders.get(each) == leader_id]
        for start in range(0, len(led), _AT_ONCE):
            found += await _open_at(cluster, leader_id, led[start : start + _AT_ONCE])
    return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))


async def _open_at(cluster: Cluster, leader_id: int, partitions: Sequence[TopicPartition]) -> list[OpenOnPartition]:
    answer = await cluster.request(
        DESCRIBE_PRODUCERS,
        lambda make: make.DescribeProducersRequest(
            topics=tuple(
                make.TopicRequest(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in numbers_by_topic(partitions).items()
            )
        ),
        broker_id=leader_id,
    )
    found = []
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue  # It was deleted meanwhile, or has no log: Tiered keeps offsets of groups in SQL.
            otherwise = f"the producers of {topic.name}-{partition.partition_index} were not told"
            if partition.error_code == TOPIC_AUTHORIZATION_FAILED:
                raise UnreadableTopic(topic.name, otherwise)
            require_success(partition, otherwise)
            found += [
                OpenOnPartition(
                    topic=topic.name,
                    partition=partition.partition_index,
                    start_offset=each.current_txn_start_offset,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    coordinator_epoch=each.coordinator_epoch,
                    last_write_ms=each.last_timestamp,
                )
                for each in partition.active_producers
                if each.current_txn_start_offset >= 0
            ]
    return found


async def abort_on_partition(cluster: Cluster, opened: OpenOnPartition) -> None:
    """Ends the transaction on this one partition, whatever its coordinator thinks of it. Raises BrokerError."""
    where = f"{opened.topic}-{opened.partition}"
    described = (await cluster.metadata([opened.topic])).topics[opened.topic]
    leader_id = next(each.leader_id for each in described.partitions if each.partition == opened.partition)
    answer = await cluster.request(
        WRITE_TXN_MARKERS,
        lambda make: make.WriteTxnMarkersRequest(
            markers=(
                make.WritableTxnMarker(
                    producer_id=opened.producer_id,
                    producer_epoch=opened.producer_epoch,
                    transaction_result=False,
                    topics=(make.WritableTxnMarkerTopic(name=opened.topic, partition_indexes=(opened.partition,)),),
                    # One that is lower than the last coordinator's would be refused; before the first any will do.
                    coordinator_epoch=max(opened.coordinator_epoch, 0),
                    transaction_version=_KEEPS_EPOCH,
                ),
            )
        ),
        broker_id=leader_id,
    )
    told = the_only(the_only(the_only(answer.markers, "marker").topics, "topic").partitions, "partition")
    if told.error_code != NONE:
        raise broker_error(told.error_code, f"the transaction on {where} was not ended")
