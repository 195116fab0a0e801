"""Pages and tails over HTTP, and the command line, show committed records from both tiers, and markers never.

The broker finds the transactions in its log, as after a power loss, and uploads what is decided.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.http_api import ask
from tests.clients.listener import Listener
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.tiers import create, eventually
from tests.support.command_line import Tiered
from tests.support.transactional_logs import TransactionalLog, random_log
from tests.unit.hot.log_files import append, open_log

TOPIC = "decided"


@pytest.fixture
def written() -> TransactionalLog:
    return random_log(random.Random(8), steps=200, start_offset=1)


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess], written: TransactionalLog) -> BrokerProcess:
    made = make_broker(settings={"tiered.upload.interval.ms": 50}).start()
    create(made, TOPIC, remote_copy_lag_ms=0, local_retention_bytes=6_000)
    with RawConnection(made) as connection:
        connection.produce(TOPIC, batch([b"before"]))
    made.stop()
    (directory,) = Path(made.data, "log").glob("*/0")
    log = open_log(directory, segment_bytes=2_000)
    for each in written.batches:
        append(log, each)
    log.discard()
    made.start()
    eventually(lambda: made.segments(TOPIC)["local_log_start_offset"] > 1, "some of it is in the store alone", made)
    assert made.segments(TOPIC)["local_log_start_offset"] < written.last_stable_offset, "some of it is here"
    return made


def test_people_see_what_was_committed_and_more_only_if_they_ask(
    broker: BrokerProcess, written: TransactionalLog
) -> None:
    committed = [0, *written.committed(written.last_stable_offset)]
    everything = [0, *written.records]
    assert committed != everything

    answer = ask(broker, "GET", f"/topics/{TOPIC}/records?limit=1000")
    assert [each["offset"] for each in answer.body["records"]] == committed
    assert (answer.body["is_end"], answer.body["next_offset"]) == (True, written.last_stable_offset)
    answer = ask(broker, "GET", f"/topics/{TOPIC}/records?limit=1000&isolation=read_uncommitted")
    assert [each["offset"] for each in answer.body["records"]] == everything

    with Listener(broker, TOPIC, from_="earliest") as listener:
        events = (event for event in listener.events() if event.name == "record")
        assert [next(events).data["offset"] for _ in committed] == committed
    with Listener(broker, TOPIC, from_="earliest", isolation="read_uncommitted") as listener:
        events = (event for event in listener.events() if event.name == "record")
        assert [next(events).data["offset"] for _ in everything] == everything

    for isolation, expected in (("read_committed", committed), ("read_uncommitted", everything)):
        shown = Tiered(broker).run("consume", TOPIC, "-o", "earliest", "--isolation", isolation, "--format", "json")
        assert [json.loads(line)["offset"] for line in shown.stdout.splitlines()] == expected
