"""kill -9 at every step of a segment's life: T1 to T5 hold after the restart, and orphans are swept."""

import time
import urllib.error
from collections.abc import Callable

import pytest

from tests.broker_process import BrokerProcess
from tests.faults.bucket import objects, verify_store
from tests.faults.ledger import LoadGenerator, check, read_all

SETTINGS = {
    "log.segment.bytes": 65_536,
    "log.local.retention.bytes": 100_000,
    "log.retention.check.interval.ms": 200,
    "tiered.sweep.interval.ms": 500,
    "tiered.purge.grace.ms": 100,
}
UPLOAD_POINTS = [
    "upload.planned",
    "upload.stored",
    "upload.verified",
    "meta.segments.commit.half",
    "meta.before_commit",
    "meta.after_commit",
    "upload.committed",
    "checkpoint.before",
    "checkpoint.written",
]


@pytest.mark.parametrize("point", UPLOAD_POINTS)
def test_a_crash_at_any_step_of_an_upload_leaves_no_orphan_and_no_gap(
    point: str, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = make_broker(settings=SETTINGS)
    is_any_transaction = point in ("meta.before_commit", "meta.after_commit")
    broker.start(environ={} if is_any_transaction else {"TIERED_CRASH_AT": f"{point}:3"})
    load = LoadGenerator(broker.bootstrap, "crashed", pause_ms=20)
    load.start()
    if is_any_transaction:
        wait_for_uploads(broker, "crashed", at_least=1)
        broker.kill()
        # Enough to leave those of the start behind; from then on uploads are most of them.
        broker.start(environ={"TIERED_CRASH_AT": f"{point}:25"})
    broker.wait_killed()
    broker.start()
    wait_for_uploads(broker, "crashed", at_least=6)
    ledger = load.finish()
    check(ledger, read_all(broker.bootstrap, "crashed"))
    check_tiers(broker, "crashed")


def wait_for_uploads(broker: BrokerProcess, topic: str, *, at_least: int) -> None:
    deadline = time.monotonic() + 60
    while _committed(broker, topic) < at_least:
        assert time.monotonic() < deadline, broker.log()[-4000:]
        time.sleep(0.05)


def _committed(broker: BrokerProcess, topic: str) -> int:
    try:
        return sum(each["state"] == "committed" for each in broker.segments(topic)["segments"])
    except urllib.error.HTTPError:
        return 0  # The topic comes with the first record.


def check_tiers(broker: BrokerProcess, topic: str) -> None:
    """T1, T3, T4, T5 from the catalogue; T2 from the store: exactly the committed objects, each whole."""
    deadline = time.monotonic() + 60
    while True:
        found = broker.segments(topic)
        committed = [each for each in found["segments"] if each["state"] == "committed"]
        keys = {each["object_key"] for each in committed}
        stored = objects(broker.data / "objects")
        if stored == keys and found["cold_end_offset"] == committed[-1]["end_offset"]:
            break
        # Uploads go on while this looks; orphans are swept within a moment.
        assert time.monotonic() < deadline, f"orphans {stored - keys}, missing {keys - stored}"
        time.sleep(0.1)
    assert found["cold_end_offset"] <= found["high_watermark"]  # T1
    expected = found["log_start_offset"]
    for segment in committed:  # T3
        assert segment["base_offset"] == expected
        expected = segment["end_offset"]
    assert found["local_log_start_offset"] <= found["cold_end_offset"]  # T4, T5
    assert found["log_start_offset"] <= found["cold_end_offset"]
    verify_store(broker.data / "objects", keys)


@pytest.mark.parametrize("point", ["retire.committed", "meta.segments.retire.half", "purge.deleted"])
def test_a_crash_while_retention_deletes_keeps_the_catalogue_and_the_store_in_step(
    point: str, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = make_broker(settings={**SETTINGS, "log.retention.bytes": 400_000, "log.local.retention.bytes": -2})
    broker.start(environ={"TIERED_CRASH_AT": point})
    load = LoadGenerator(broker.bootstrap, "retired", pause_ms=20)
    load.start()
    broker.wait_killed()
    broker.start()
    deadline = time.monotonic() + 60
    while broker.metric("tiered_objects_purged_total") < 2:
        assert time.monotonic() < deadline, broker.log()[-4000:]
        time.sleep(0.05)
    ledger = load.finish()
    start = wait_until_still(broker, "retired")
    found = read_all(broker.bootstrap, "retired")
    ledger.acknowledged = [each for each in ledger.acknowledged if each[0] >= found[0][0]]
    check(ledger, found, log_start_offset=found[0][0])
    assert found[0][0] >= start
    deadline = time.monotonic() + 60
    while True:
        keys = {each["object_key"] for each in broker.segments("retired")["segments"] if each["object_key"]}
        stored = objects(broker.data / "objects")
        if stored == keys:
            break
        assert time.monotonic() < deadline, f"orphans {stored - keys}, missing {keys - stored}"
        time.sleep(0.1)


def wait_until_still(broker: BrokerProcess, topic: str) -> int:
    """The log start once uploads and retention have come to rest: a consumer may not be overtaken by them."""
    deadline = time.monotonic() + 60
    before: object = None
    while True:
        found = broker.segments(topic)
        now = (found["log_start_offset"], found["local_log_start_offset"], found["cold_end_offset"])
        if now == before:
            return int(found["log_start_offset"])
        assert time.monotonic() < deadline, f"still moving: {now}"
        before = now
        time.sleep(1.0)


def test_an_interrupted_sweep_is_finished_by_the_next_start(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings=SETTINGS)
    broker.start(environ={"TIERED_CRASH_AT": "upload.stored"})
    load = LoadGenerator(broker.bootstrap, "swept", pause_ms=20)
    load.start()
    broker.wait_killed()
    for point in ("sweep.abandoned", "sweep.deleted"):
        broker.process = None
        _start_and_crash(broker, point)
    broker.start()
    wait_for_uploads(broker, "swept", at_least=2)
    check(load.finish(), read_all(broker.bootstrap, "swept"))
    check_tiers(broker, "swept")


def _start_and_crash(broker: BrokerProcess, point: str) -> None:
    try:
        broker.start(environ={"TIERED_CRASH_AT": point})
    except AssertionError:
        return  # It died before its ready line: the sweep is part of the start.
    broker.wait_killed()
