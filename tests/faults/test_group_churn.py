"""Must hold 1: a group under joins, leaves, kill -9 of members and of the coordinator.

Every record is processed at least once, none twice while no rebalance happens, a rebalance is over within the
session time-out and a second, and cooperative and static members do not stop the world.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.broker_process import BrokerProcess
from tests.cluster.processes import ClusterProcesses
from tests.faults.churn import GROUP, Churn
from tests.faults.sites import Cluster, OneBroker, Site

SESSION_S = 6.0
WITHIN_S = SESSION_S + 1.0
SILENCE_S = 1.0
# What is promised is held in `make soak-tests`. Beside other tests on the same cores members may be silent for long.
SESSION_BESIDE_OTHERS_S = 15.0
WITHIN_BESIDE_OTHERS_S = SILENCE_BESIDE_OTHERS_S = SESSION_BESIDE_OTHERS_S + 15.0
START_S = 60.0
CONFIG = {"heartbeat.interval.ms": 300, "max.poll.interval.ms": 60_000}
SETTINGS = {"group.initial.rebalance.delay.ms": 500, "offsets.topic.num.partitions": 50}


def churn_of(site: Site, folder: Path, strategy: str, *, partitions: int, rate: int, session_ms: int = 6000) -> Churn:
    return Churn(
        site,
        folder,
        partitions=partitions,
        records_per_second=rate,
        config=CONFIG | {"partition.assignment.strategy": strategy, "session.timeout.ms": session_ms},
    )


def blows(
    churn: Churn, rounds: int, size: int, *, cooperative: bool, within_s: float, silence_s: float = SILENCE_S
) -> None:
    """`rounds` of everything that can happen to a group that was whole, each followed by a quiet time; the audit."""
    quiet: list[tuple[float, float]] = []
    for _ in range(rounds):
        kept = set(churn.members)
        began = time.monotonic()
        churn.start(churn.new_name(), size)
        churn.settled("join", began, within_s=START_S)  # The time that the process takes to start is in it.
        if cooperative:
            check_world_goes_on(churn, kept, began, time.monotonic(), silence_s)
        quiet.append(churn.quiet(1.0))

        began = time.monotonic()
        churn.take(churn.oldest()).kill()
        churn.settled("kill -9 of members", began, within_s=within_s)
        quiet.append(churn.quiet(1.0))

        began = churn.site.kill_coordinator(GROUP)
        churn.settled("kill -9 of the coordinator", began, within_s=within_s)
        quiet.append(churn.quiet(1.0))
        churn.site.make_good()

        churn.start(churn.new_name(), size)
        churn.settled("join", time.monotonic(), within_s=START_S)
        leaving = churn.take(churn.oldest())
        began = time.monotonic()
        leaving.leave()
        churn.settled("leave", began, within_s=within_s)
        quiet.append(churn.quiet(1.0))
    churn.drain()
    events = churn.events()
    churn.check_order(events)
    in_quiet = sum(churn.check_quiet(events, each) for each in quiet)
    counts = churn.processed(events)
    twice = sum(1 for count in counts.values() if count > 1)
    print(
        f"\n{churn.expected} members, {churn.partitions} partitions, {len(counts)} records: {twice} processed more than"
    )
    print(f"once, all around rebalances; {in_quiet} in quiet times, each once")
    for blow, took in churn.took_s.items():
        print(f"{blow:28}{len(took):3} times, whole again after {median(took):.2f} s, at most {max(took):.2f} s")


def check_world_goes_on(churn: Churn, kept: set[str], start_s: float, end_s: float, silence_s: float) -> None:
    """While others joined, the members that were there gave up only what moved, and went on with the rest."""
    events = [event for event in churn.events() if event.consumer.rpartition("-")[0] in kept]
    revoked = [each for event in churn.changes(events, start_s, end_s) if event.kind == "V" for each in event.numbers]
    assert len(revoked) < churn.partitions / 2, f"{len(revoked)} partitions were given up"
    assert not [event for event in churn.changes(events, start_s, end_s) if event.kind == "L"]
    at_s = start_s
    while at_s + silence_s < end_s:
        active = {event.consumer for event in events if event.kind == "R" and at_s <= event.at_s < at_s + silence_s}
        assert active, f"nobody processed anything in the {silence_s} s after {at_s - start_s:.1f} s"
        at_s += silence_s


@pytest.mark.slow
def test_a_group_survives_joins_leaves_and_kills(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    site = OneBroker(make_broker(settings=SETTINGS).start())
    session_ms = round(SESSION_BESIDE_OTHERS_S * 1000)
    with churn_of(site, tmp_path, "cooperative-sticky", partitions=24, rate=400, session_ms=session_ms) as churn:
        for _ in range(3):
            churn.start(churn.new_name(), 4)
        churn.settled("start", time.monotonic(), within_s=START_S)
        within_s, silence_s = WITHIN_BESIDE_OTHERS_S, SILENCE_BESIDE_OTHERS_S
        blows(churn, 1, 4, cooperative=True, within_s=within_s, silence_s=silence_s)


@pytest.mark.slow
def test_static_members_that_restart_in_time_disturb_nobody(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    site = OneBroker(make_broker(settings=SETTINGS).start())
    with churn_of(site, tmp_path, "range", partitions=12, rate=400, session_ms=30_000) as churn:
        churn.start("staying", 3)
        churn.start("restarted", 3, static=True)
        churn.settled("start", time.monotonic(), within_s=START_S)
        quiet = [churn.quiet(1.0)]
        began = time.monotonic()
        churn.kill_and_restart("restarted")
        churn.returned("restarted", began, within_s=30.0)
        churn.settled("restart", began, within_s=30.0)
        events = churn.events()
        changed = {event.consumer.rpartition("-")[0] for event in churn.changes(events, began, time.monotonic())}
        assert changed == {"restarted"}, "nobody else noticed"
        quiet.append(churn.quiet(1.0))
        churn.drain()
        events = churn.events()
        churn.check_order(events)
        for each in quiet:
            churn.check_quiet(events, each)


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_fifty_consumers_of_a_hundred_partitions(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path, strategy: str
) -> None:
    fifty_of_a_hundred(OneBroker(make_broker(settings=SETTINGS).start()), tmp_path, strategy)


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_fifty_consumers_of_a_hundred_partitions_on_three_brokers(tmp_path: Path, strategy: str) -> None:
    """What dies stays away until the group is whole again: another broker coordinates it, others lead."""
    with ClusterProcesses(tmp_path / "cluster", settings=SETTINGS) as cluster:
        cluster.start()
        fifty_of_a_hundred(Cluster(cluster), tmp_path, strategy)


def fifty_of_a_hundred(site: Site, folder: Path, strategy: str) -> None:
    with churn_of(site, folder, strategy, partitions=100, rate=1000) as churn:
        for _ in range(5):
            churn.start(churn.new_name(), 10)
        churn.settled("start", time.monotonic(), within_s=START_S)
        blows(churn, 3, 10, cooperative=strategy == "cooperative-sticky", within_s=WITHIN_S)
