"""The tail over HTTP for those who read slowly or not at all: bounded memory, and they are told."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.clients.listener import Listener
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.http.tails import MIB, next_event, produce, quick, values_of
from tests.components.tiers import create

__all__ = ["quick"]

STALLS_S = (1.5, 3.0, 6.0, 12.0)
"""How long a listener that shall be slow reads nothing. A broker that has little of the processor fills the connection
only after that, and never waits for the listener: the next stall is longer."""


def resident_bytes(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


def flood(broker: BrokerProcess, topic: str, mebibytes: int) -> int:
    """Produces that much; how many records it is."""
    with RawConnection(broker, timeout_s=60) as connection:
        data = batch([bytes([97 + number % 26]) * 9_000 for number in range(100)])
        for _ in range(mebibytes):
            assert connection.produce(topic, data).error_code == 0
    return mebibytes * 100


def test_listeners_that_do_not_read_cost_bounded_memory(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker().start()
    create(broker, "flood")
    flood(broker, "flood", 40)
    listeners = [Listener(broker, "flood", receive_buffer_bytes=4096) for _ in range(20)]
    for listener in listeners:
        next_event(listener, "start")
    before = resident_bytes(broker)
    flood(broker, "flood", 40)
    time.sleep(4)  # In this time much would have gathered: kept for each of them it were 20 times 90 MiB.
    assert resident_bytes(broker) - before < 60 * MIB
    for listener in listeners:
        listener.close()


def test_slow_listener_is_told_and_still_gets_every_record(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker().start()
    create(broker, "slow")
    with Listener(broker, "slow", receive_buffer_bytes=32768) as listener:
        next_event(listener, "start")
        events = listener.events()
        count, expected, told = 0, 0, 0
        for stall_s in STALLS_S:
            count += flood(broker, "slow", 6)
            time.sleep(stall_s)
            while expected < count:
                event = next(events)
                if event.name == "behind":
                    told += 1
                    assert (event.data["reason"], event.data["skipped"]) == ("slow", False)
                    assert event.data["partitions"] == [{"partition": 0, "from_offset": expected, "to_offset": count}]
                else:
                    assert event.data["offset"] == expected
                    expected += 1
            if told:
                break
        assert told >= 1


def test_slow_listener_that_wants_the_newest_learns_what_it_missed(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker().start()
    create(broker, "skip")
    with Listener(broker, "skip", receive_buffer_bytes=32768, when_behind="skip") as listener:
        event = next_event(listener, "start")
        events = listener.events()
        count, expected = 0, 0
        for stall_s in STALLS_S:
            count += flood(broker, "skip", 6)
            time.sleep(stall_s)
            while expected < count and (event := next(events)).name == "record":
                assert event.data["offset"] == expected
                expected += 1
            if expected < count:
                break
        assert event.name == "behind"
        assert (event.data["reason"], event.data["skipped"]) == ("slow", True)
        assert event.data["partitions"] == [{"partition": 0, "from_offset": expected, "to_offset": count}]
        assert event.id == f"0:{count}"
        produce(broker, "skip", b"newest")
        assert values_of(listener.records(1)) == [b"newest"]


def test_listener_that_never_reads_is_cut_off_and_can_come_back(quick: BrokerProcess) -> None:
    create(quick, "cut")
    with Listener(quick, "cut", receive_buffer_bytes=32768) as listener:
        next_event(listener, "start")
        count = flood(quick, "cut", 6)
        time.sleep(2.5)  # Longer than tiered.tail.stall.timeout.ms.
        *records, last = listener.events()
        assert last.name == "behind"
        assert last.data["reason"] == "cut_off"
        assert [each.data["offset"] for each in records if each.name == "record"] == list(
            range(last.data["partitions"][0]["from_offset"])
        )
    with Listener(quick, "cut", last_id=last.id) as listener:
        rest = listener.records(count - last.data["partitions"][0]["from_offset"])
        assert rest[0].data["offset"] == last.data["partitions"][0]["from_offset"]
        assert rest[-1].data["offset"] == count - 1
