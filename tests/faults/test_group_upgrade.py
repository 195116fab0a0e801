"""Groups of `group.protocol=consumer` under churn, and rolling upgrades from classic and back, under load.

Every record is processed at least once, none twice while nothing rebalances, and no partition is used by two.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.faults.group_load import Load
from tests.faults.rolling_group import Group

CLASSIC = {
    "group_protocol": "classic",
    "partition_assignment_strategy": "cooperative-sticky",
    "heartbeat_interval_ms": 300,
}
CONSUMER = {"group_protocol": "consumer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a test is. Workers are processes, each with the same number of consumers."""

    workers: int
    consumers_each: int
    partitions: int
    session_ms: int
    records_per_s: int
    quiet_records: int
    rounds: int

    @property
    def consumers(self) -> int:
        return self.workers * self.consumers_each


SMALL = Scale(
    workers=3, consumers_each=2, partitions=12, session_ms=4000, records_per_s=400, quiet_records=600, rounds=1
)
BIG = Scale(
    workers=10, consumers_each=5, partitions=100, session_ms=6000, records_per_s=1000, quiet_records=20_000, rounds=3
)
SCALES = [
    pytest.param(SMALL, id="small", marks=pytest.mark.slow),
    pytest.param(BIG, id="big", marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
]


@pytest.fixture
def scaled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Scale, BrokerProcess, Group, Load]]:
    """A broker with a topic of the scale's partitions, its group, and who writes."""
    scale: Scale = request.param
    settings = {
        "group.consumer.session.timeout.ms": scale.session_ms,
        "group.consumer.heartbeat.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 300,
        "group.min.session.timeout.ms": 1000,
    }
    broker = BrokerProcess(tmp_path / "data", settings=settings).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("work", scale.partitions, 1)])["work"].result(30)
        load = Load(broker.bootstrap, "work", scale.partitions)
        with Group(broker.bootstrap, "g", "work", tmp_path / "group") as group:
            yield scale, broker, group, load
    finally:
        broker.ensure_stopped()


def check_quiet(scale: Scale, group: Group, load: Load) -> None:
    """While nothing rebalances every record is processed exactly once."""
    wait_caught_up(group, load)
    places = load.write(scale.quiet_records)
    processed = group.wait_processed(places)
    twice = {place: processed[place] for place in places if processed[place] != 1}
    assert not twice, f"{len(twice)} of {len(places)} were processed more than once, such as {list(twice.items())[:5]}"


def wait_caught_up(group: Group, load: Load) -> None:
    group.wait_processed(list(load.acknowledged))


def check_all(scale: Scale, group: Group, load: Load, numbers: dict[str, float]) -> None:
    places = load.end()
    processed = group.wait_processed(places)
    group.check_overlaps()
    group.check_runs()
    again = sum(count - 1 for count in processed.values())
    print(
        f"\n{scale.consumers} consumers, {scale.partitions} partitions: {len(places)} records, {again} processed again"
    )
    print({name: round(value, 2) for name, value in numbers.items()})


@pytest.mark.parametrize("scaled", SCALES, indirect=True)
def test_churn_with_the_new_protocol_loses_nothing_and_repeats_nothing_at_rest(
    scaled: tuple[Scale, BrokerProcess, Group, Load],
) -> None:
    scale, broker, group, load = scaled
    numbers: dict[str, float] = {}
    workers = [group.start(scale.consumers_each, **CONSUMER) for _ in range(scale.workers)]
    group.wait_members(scale.consumers, scale.partitions)
    check_quiet(scale, group, load)
    load.begin(records_per_s=scale.records_per_s)
    for number in range(scale.rounds):
        # Some join and some leave.
        workers.append(group.start(scale.consumers_each, **CONSUMER))
        started = time.monotonic()
        numbers[f"join {number}"] = (
            group.wait_members(scale.consumers + scale.consumers_each, scale.partitions) - started
        )
        gone = workers.pop(0)
        gone.stop()
        gone.wait()
        started = time.monotonic()
        numbers[f"leave {number}"] = group.wait_members(scale.consumers, scale.partitions) - started
        # Some die: their partitions are others' within the session time-out and a second.
        killed = workers.pop(0)
        started = time.monotonic()
        killed.kill()
        numbers[f"kill {number}"] = took_s = (
            group.wait_members(scale.consumers - scale.consumers_each, scale.partitions) - started
        )
        assert took_s <= scale.session_ms / 1000 + 1, numbers
        workers.append(group.start(scale.consumers_each, **CONSUMER))
        group.wait_members(scale.consumers, scale.partitions)
        # The coordinator dies: everybody goes on with its successor.
        broker.kill()
        started = time.monotonic()
        broker.start()
        numbers[f"coordinator {number}"] = group.wait_again(scale.consumers, scale.partitions, since=started) - started
        wait_caught_up(group, load)
    load.end()
    check_quiet(scale, group, load)
    check_all(scale, group, load, numbers)


@pytest.mark.parametrize("scaled", SCALES, indirect=True)
def test_a_rolling_upgrade_and_the_way_back_lose_nothing_and_repeat_nothing_at_rest(
    scaled: tuple[Scale, BrokerProcess, Group, Load],
) -> None:
    scale, _, group, load = scaled
    numbers: dict[str, float] = {}
    classic: dict[str, Any] = CLASSIC | {"session_timeout_ms": scale.session_ms}
    workers = [group.start(scale.consumers_each, **classic) for _ in range(scale.workers)]
    group.wait_members(scale.consumers, scale.partitions)
    check_quiet(scale, group, load)
    load.begin(records_per_s=scale.records_per_s)
    for name, protocol in (("upgrade", CONSUMER), ("back", classic)):
        started = time.monotonic()
        for number in range(scale.workers):
            gone = workers.pop(0)
            gone.stop()
            gone.wait()
            workers.append(group.start(scale.consumers_each, **protocol))
            group.wait_members(scale.consumers, scale.partitions)
            if number == 0:
                # Both protocols in one group, at rest.
                load.end()
                check_quiet(scale, group, load)
                load.begin(records_per_s=scale.records_per_s)
        numbers[name] = time.monotonic() - started
        load.end()
        check_quiet(scale, group, load)
        load.begin(records_per_s=scale.records_per_s)
    check_all(scale, group, load, numbers)
