"""kill -9 at random points under load: what was acknowledged stays, once, at its offset.

`make soak-tests` runs a hundred kills (TIERED_KILLS); `make test` a few.
"""

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.broker_process import BrokerProcess
from tests.faults.ledger import LoadGenerator, check, read_all

SETTINGS = {
    # Small segments, so that kills hit rolls, uploads and local deletions too.
    "log.segment.bytes": 262_144,
    "log.local.retention.bytes": 600_000,
    "log.retention.check.interval.ms": 500,
    "tiered.sweep.interval.ms": 1_000,
}
QUICK_KILLS = 4


def run_kills(broker: BrokerProcess, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    broker.start()
    load = LoadGenerator(broker.bootstrap, "killed")
    load.start()
    load.wait_for_progress()
    for _ in range(kills):
        time.sleep(chance.uniform(0.05, 1.2))
        broker.kill()
        time.sleep(chance.uniform(0.0, 0.2))
        broker.start()
    time.sleep(1.0)
    ledger = load.finish()
    assert not ledger.failed, f"{len(ledger.failed)} records failed for good: {set(ledger.failed)}"
    assert len(ledger.acknowledged) == ledger.sent
    found = read_all(broker.bootstrap, "killed")
    check(ledger, found)
    print(f"{kills} kills (seed {seed}): {ledger.sent} records acknowledged, {len(found)} read, 0 lost, 0 twice")
    check_catalogue(broker)


def check_catalogue(broker: BrokerProcess) -> None:
    """Committed rows tile the log, and each has its whole object (checked byte for byte against its hashes)."""
    from tests.faults.bucket import verify_store

    segments = [each for each in broker.segments("killed")["segments"] if each["state"] == "committed"]
    expected = 0
    for segment in segments:
        assert segment["base_offset"] == expected, f"a gap or an overlap at {expected}: {segment}"
        expected = segment["end_offset"]
    verify_store(broker.data / "objects", {segment["object_key"] for segment in segments})


@pytest.mark.slow
def test_no_acknowledged_record_is_lost_or_doubled_by_kill_9(make_broker: Callable[..., BrokerProcess]) -> None:
    run_kills(make_broker(settings=SETTINGS), QUICK_KILLS, seed=1)


@pytest.mark.soak
def test_a_hundred_kills_lose_and_double_nothing(make_broker: Callable[..., BrokerProcess]) -> None:
    kills = int(os.environ.get("TIERED_KILLS", "100"))
    run_kills(make_broker(settings=SETTINGS), kills, seed=int(os.environ.get("TIERED_SEED", "2")))
