"""Topics for a test: makes them, and moves their records from the disk to the object store now.

Speaks Kafka's protocol alone, so that it does the same to a broker in this process and to one in another.
Owns no connection for longer than one call. Must never block the caller's event loop with one of its own.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from tiered.peer import Cluster, broker_error, parse_bootstrap
from tiered.peer.topic_admin import BROKERS_DEFAULT, alter_configs, create_topics, describe_configs
from tiered.runtime import SystemClock

T = TypeVar("T")

TIMEOUT_MS = 10_000
POLL_S = 0.01
_TOPIC_SOURCE = 1
_LATEST, _EARLIEST_LOCAL, _EARLIEST_PENDING_UPLOAD = -1, -4, -6

# Configs that make a log roll, upload and, perhaps, delete at the next look.
_NOW = {"segment.ms": "1", "remote.copy.lag.ms": "0"}
_NOT_LOCAL = {"local.retention.bytes": "0", "local.retention.ms": "0"}


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, on a thread of its own: the caller may be inside an event loop, as in a notebook."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tiered-testing") as thread:
        return thread.submit(asyncio.run, work).result()


async def create(
    bootstrap: str, name: str, partitions: int, configs: Mapping[str, str], *, replication_factor: int = BROKERS_DEFAULT
) -> None:
    """Makes the topic. Raises BrokerError with the broker's reason."""
    async with Cluster(bootstrap, timeout_ms=TIMEOUT_MS) as cluster:
        (made,) = await create_topics(
            cluster, [name], partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        if made.error_code:
            raise broker_error(made.error_code, f"topic {name} was not made: {made.error_message or 'no reason given'}")


async def all_met(bootstrap: str) -> None:
    """Returns when each of the brokers knows all of them. Raises TimeoutError."""
    addresses = parse_bootstrap(bootstrap)
    async with asyncio.timeout(TIMEOUT_MS / 1000.0), asyncio.TaskGroup() as tasks:
        for host, port in addresses:
            tasks.create_task(_has_met(host, port, len(addresses)))


async def _has_met(host: str, port: int, brokers: int) -> None:
    async with Cluster([(host, port)], timeout_ms=TIMEOUT_MS) as cluster:
        while len((await cluster.metadata([])).brokers) < brokers:
            await asyncio.sleep(POLL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """Where one partition's records are: `end` is the next offset, `cold_end` the first that is not in the store."""

    end: int
    cold_end: int
    local_start: int


async def tier(
    bootstrap: str, topic: str, *, keep_local: bool, timeout_s: float, is_written_down: Callable[[], bool]
) -> None:
    """Returns when the object store holds every record that `topic` has now, and its checkpoint says so.

    Raises TimeoutError that says how far each partition came.
    """
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + timeout_s * 1000.0
    async with Cluster(bootstrap, timeout_ms=TIMEOUT_MS) as cluster:
        numbers = await _partitions(cluster, topic)
        wanted = {number: where.end for number, where in (await _where(cluster, topic, numbers)).items()}
        before = await _own_configs(cluster, topic)
        changed = _NOW if keep_local else _NOW | _NOT_LOCAL
        await _alter(cluster, topic, changed)
        try:
            while True:
                now = await _where(cluster, topic, numbers)
                late = {
                    number: where
                    for number, where in now.items()
                    if where.cold_end < wanted[number] or not (keep_local or where.local_start >= wanted[number])
                }
                if not late and await asyncio.to_thread(is_written_down):
                    return
                if clock.monotonic_ms() > deadline_ms:
                    raise TimeoutError(
                        f"{topic} was not moved to the object store within {timeout_s:g} s: {late or 'its checkpoint'} "
                        "is late. Is remote.storage.enable on, and does the store answer?"
                    )
                await asyncio.sleep(POLL_S)
        finally:
            await _alter(cluster, topic, {name: before.get(name) for name in changed})


async def _partitions(cluster: Cluster, topic: str) -> list[int]:
    found = (await cluster.metadata([topic])).topics.get(topic)
    if found is None or found.error_code:
        raise broker_error(3 if found is None else found.error_code, f"there is no topic {topic}")
    return [each.partition for each in found.partitions]


async def _where(cluster: Cluster, topic: str, numbers: list[int]) -> dict[int, _Where]:
    async def at(timestamp: int) -> dict[int, int]:
        return await cluster.list_offsets(topic, dict.fromkeys(numbers, timestamp))

    end, pending, local = await at(_LATEST), await at(_EARLIEST_PENDING_UPLOAD), await at(_EARLIEST_LOCAL)
    return {n: _Where(end=end[n], cold_end=pending[n], local_start=local[n]) for n in numbers}


async def _own_configs(cluster: Cluster, topic: str) -> dict[str, str | None]:
    """The configs that the topic has for itself."""
    (found,) = await describe_configs(cluster, [topic])
    return {each.name: each.value for each in found.configs if each.config_source == _TOPIC_SOURCE}


async def _alter(cluster: Cluster, topic: str, configs: Mapping[str, str | None]) -> None:
    """Sets the topic's configs; None takes one back to its default."""
    (done,) = await alter_configs(cluster, topic, configs)
    if done.error_code:
        raise broker_error(done.error_code, f"{topic} could not be told to move: {done.error_message}")
