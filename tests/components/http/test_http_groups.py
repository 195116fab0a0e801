"""Groups over HTTP: who reads what, how far behind, since when; and offsets that are reset only while nobody reads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.http_api import ask
from tests.clients.raw import RawConnection
from tests.components.batches import FIRST_MS, batch
from tests.components.tiers import create, eventually
from tests.support.wire_offsets import commit as commit_raw

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

pytest_plugins = ["tests.postgres"]


@pytest.fixture(scope="module")
def sampling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that notes every group's lag ten times a second."""
    settings = {"tiered.lag.sample.interval.ms": 100, "group.initial.rebalance.delay.ms": 0}
    process = BrokerProcess(tmp_path_factory.mktemp("sampling") / "data", settings=settings).start()
    yield process
    process.ensure_stopped()


def produce(broker: BrokerProcess, topic: str, count: int, partition: int = 0) -> None:
    with RawConnection(broker, timeout_s=30) as connection:
        answer = connection.produce(topic, batch([b"%d" % each for each in range(count)]), partition=partition)
        assert answer.error_code == 0


def commit(broker: BrokerProcess, group: str, **offsets: int) -> None:
    """Commits as somebody who is no member: `commit(broker, "g", orders_0=5)`."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    wanted = [TopicPartition(name.rpartition("_")[0], int(name.rpartition("_")[2]), at) for name, at in offsets.items()]
    stored = consumer.commit(offsets=wanted, asynchronous=False)
    assert stored is not None
    assert all(each.error is None for each in stored), stored
    consumer.close()


@contextmanager
def member(broker: BrokerProcess, group: str, topic: str) -> Iterator[confluent_kafka.Consumer]:
    """A consumer that has its assignment and keeps polling until the block ends."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    assigned, stop = threading.Event(), threading.Event()
    consumer.subscribe([topic], on_assign=lambda *_: assigned.set())

    def poll() -> None:
        while not stop.is_set():
            consumer.poll(0.05)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert assigned.wait(30), "no assignment came"
        yield consumer
    finally:
        stop.set()
        thread.join()
        consumer.close()


def test_group_shows_its_offsets_and_what_it_lacks(broker: BrokerProcess) -> None:
    create(broker, "orders", 3)
    produce(broker, "orders", 10)
    produce(broker, "orders", 4, partition=2)
    commit(broker, "billing", orders_0=3, orders_2=4)

    def listed() -> tuple[object, ...]:
        (found,) = (each for each in ask(broker, "GET", "/groups").body["groups"] if each["group_id"] == "billing")
        return found["state"], found["members"], found["lag"], found["topics"]

    # The list is of what was read from SQL a fifth of a second ago, perhaps.
    eventually(lambda: listed() == ("Empty", 0, 7, ["orders"]), "the list tells what the group lacks")
    found = ask(broker, "GET", "/groups/billing").body
    assert found["lag"] == 7
    assert [(each["partition"], each["committed_offset"], each["lag"]) for each in found["offsets"]] == [
        (0, 3, 7),
        (2, 4, 0),
    ]
    assert found["offsets"][0]["high_watermark"] == 10
    assert found["offsets"][0]["committed_at_ms"] > FIRST_MS
    assert found["members"] == []


def test_offset_below_zero_is_shown_and_counts_for_no_lag(broker: BrokerProcess) -> None:
    create(broker, "rewound", 2)
    produce(broker, "rewound", 10)
    with RawConnection(broker) as connection:
        commit_raw(connection, "rewinder", {"rewound": {0: 4, 1: -2}})
    found = ask(broker, "GET", "/groups/rewinder").body
    assert [(each["committed_offset"], each["lag"]) for each in found["offsets"]] == [(4, 6), (-2, None)]

    def listed() -> list[int]:
        return [each["lag"] for each in ask(broker, "GET", "/groups").body["groups"] if each["group_id"] == "rewinder"]

    eventually(lambda: listed() == [6], "the list counts what lags alone")


def test_member_is_shown_with_its_partitions(sampling: BrokerProcess) -> None:
    create(sampling, "shared", 2)
    with member(sampling, "team", "shared"):
        found = ask(sampling, "GET", "/groups/team").body
        assert found["state"] == "Stable"
        (only,) = found["members"]
        assert only["client_id"] == "reader"
        assert only["client_host"]
        assert {name: sorted(numbers) for name, numbers in only["assignment"].items()} == {"shared": [0, 1]}
        assert [(each["partition"], each["committed_offset"], each["member_id"]) for each in found["offsets"]] == [
            (0, None, only["member_id"]),
            (1, None, only["member_id"]),
        ]
        (listed,) = (each for each in ask(sampling, "GET", "/groups").body["groups"] if each["group_id"] == "team")
        assert (listed["members"], listed["lag"]) == (1, None)


def test_group_id_may_hold_any_character(broker: BrokerProcess) -> None:
    create(broker, "odd")
    produce(broker, "odd", 2)
    group = "a/b c?d#é%2F"
    commit(broker, group, odd_0=1)
    found = ask(broker, "GET", f"/groups/{quote(group, safe='')}")
    assert (found.status, found.body["group_id"], found.body["lag"]) == (200, group, 1)


def test_lag_is_kept_over_time(sampling: BrokerProcess) -> None:
    create(sampling, "grows")
    produce(sampling, "grows", 5)
    commit(sampling, "slow", grows_0=2)

    def lags() -> list[int]:
        answer = ask(sampling, "GET", "/groups/slow/lag?minutes=1")
        assert answer.status == 200
        assert answer.body["interval_ms"] == 100
        times = [each["at_ms"] for each in answer.body["samples"]]
        assert times == sorted(times)
        return [each["lag"] for each in answer.body["samples"]]

    eventually(lambda: 3 in lags(), "a sample of the lag", sampling)
    produce(sampling, "grows", 5)
    eventually(lambda: lags()[-1] == 8, "a sample of the greater lag", sampling)
    commit(sampling, "slow", grows_0=10)
    eventually(lambda: lags()[-1] == 0, "a sample without lag", sampling)
    found = lags()
    assert found.index(3) < found.index(8) < len(found) - 1


def test_a_lag_says_for_how_long_a_record_waits(sampling: BrokerProcess) -> None:
    create(sampling, "waits", 2)
    produce(sampling, "waits", 5)
    produce(sampling, "waits", 5, partition=1)
    commit(sampling, "patient", waits_0=2, waits_1=5)

    def waits_ms() -> tuple[int, int, int]:
        (listed,) = (
            group for group in ask(sampling, "GET", "/groups").body["groups"] if group["group_id"] == "patient"
        )
        shown = ask(sampling, "GET", "/groups/patient").body
        behind, caught_up = (offset["lag_ms"] or 0 for offset in shown["offsets"])
        assert shown["lag_ms"] in (None, behind)
        return listed["lag_ms"] or 0, behind, caught_up

    eventually(lambda: min(waits_ms()[:2]) > 300, "the oldest record waits for longer and longer", sampling)
    assert waits_ms()[2] == 0
    commit(sampling, "patient", waits_0=5)
    eventually(lambda: waits_ms() == (0, 0, 0), "nothing waits", sampling)


def test_lag_has_a_gap_while_sql_is_away_and_goes_on_afterwards(
    make_broker: Callable[..., BrokerProcess], postgres_url: str, postgres_server: "PostgresServer"
) -> None:
    broker = make_broker("--meta", postgres_url, settings={"tiered.lag.sample.interval.ms": 100}).start()
    create(broker, "gap")
    produce(broker, "gap", 5)
    commit(broker, "patient", gap_0=1)

    def lags() -> list[int | None]:
        return [each["lag"] for each in ask(broker, "GET", "/groups/patient/lag").body["samples"]]

    eventually(lambda: 4 in lags(), "a sample of the lag", broker)
    postgres_server.stop()
    try:
        eventually(lambda: lags()[-1] is None, "a sample without an answer", broker)
        assert ask(broker, "GET", "/groups").status == 503
        assert ask(broker, "GET", "/cost").status == 503
        assert ask(broker, "GET", "/cluster").status == 200
        assert ask(broker, "GET", "/topics/gap").status == 200
        assert len(ask(broker, "GET", "/topics/gap/records").body["records"]) == 5
    finally:
        postgres_server.start()
    eventually(lambda: lags()[-1] == 4, "samples again", broker)


# Resetting offsets


def reset(broker: BrokerProcess, group: str, **body: object) -> list[tuple[int, int | None, int]]:
    """(partition, before, after) of each."""
    answer = ask(broker, "POST", f"/groups/{group}/offsets/reset", body)
    assert answer.status == 200, answer
    return [(each["partition"], each["before"], each["after"]) for each in answer.body["offsets"]]


def committed(broker: BrokerProcess, group: str) -> dict[int, int]:
    found = ask(broker, "GET", f"/groups/{group}").body["offsets"]
    return {each["partition"]: each["committed_offset"] for each in found}


def test_offsets_are_reset_to_what_was_asked_and_stay_so_over_a_restart(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker().start()
    create(broker, "back", 2)
    produce(broker, "back", 10)
    produce(broker, "back", 6, partition=1)
    commit(broker, "idle", back_0=4)
    assert reset(broker, "idle", topic="back", to="earliest", dry_run=True) == [(0, 4, 0), (1, None, 0)]
    assert committed(broker, "idle") == {0: 4}
    assert reset(broker, "idle", topic="back", to="latest") == [(0, 4, 10), (1, None, 6)]
    assert committed(broker, "idle") == {0: 10, 1: 6}
    assert reset(broker, "idle", topic="back", to={"offset": 3}, partitions=[1]) == [(1, 6, 3)]
    assert committed(broker, "idle") == {0: 10, 1: 3}
    assert reset(broker, "idle", topic="back", to={"timestamp_ms": FIRST_MS + 4500}) == [(0, 10, 5), (1, 3, 5)]
    assert reset(broker, "idle", topic="back", to={"timestamp_ms": FIRST_MS + 10**9}) == [(0, 5, 10), (1, 5, 6)]
    answer = ask(broker, "POST", "/groups/idle/offsets/reset", {"topic": "back", "to": {"offset": 8}, "dry_run": True})
    assert [(each["after"], each["asked"]) for each in answer.body["offsets"]] == [(8, None), (6, 8)]
    assert reset(broker, "idle", topic="back", to="earliest", partitions=[0]) == [(0, 10, 0)]
    assert broker.stop() == 0
    broker.start()
    assert committed(broker, "idle") == {0: 0, 1: 6}


def test_offsets_of_a_group_with_members_are_not_reset(sampling: BrokerProcess) -> None:
    create(sampling, "busy")
    produce(sampling, "busy", 5)
    commit(sampling, "working", busy_0=3)
    with member(sampling, "working", "busy"):
        for dry_run in (False, True):
            body = {"topic": "busy", "to": "earliest", "dry_run": dry_run}
            answer = ask(sampling, "POST", "/groups/working/offsets/reset", body)
            assert answer.status == 409
            assert "stop them" in answer.message
        assert ask(sampling, "DELETE", "/groups/working").status == 409
        assert committed(sampling, "working") == {0: 3}
    assert reset(sampling, "working", topic="busy", to="earliest") == [(0, 3, 0)]


@pytest.mark.parametrize(
    ("body", "status", "names"),
    [
        ({"to": "latest"}, 400, "topic"),
        ({"topic": "there"}, 400, "to"),
        ({"topic": "there", "to": "middle"}, 400, "earliest"),
        ({"topic": "there", "to": {}}, 400, "to"),
        ({"topic": "there", "to": {"offset": 1, "timestamp_ms": 1}}, 400, "to"),
        ({"topic": "there", "to": {"offset": -1}}, 400, "offset"),
        ({"topic": "there", "to": {"offset": True}}, 400, "offset"),
        ({"topic": "there", "to": "latest", "partitions": [1]}, 404, "partition 1"),
        ({"topic": "there", "to": "latest", "partitions": ["0"]}, 400, "partitions"),
        ({"topic": "there", "to": "latest", "dry_run": 1}, 400, "dry_run"),
        ({"topic": "there", "to": "latest", "force": True}, 400, "force"),
        ({"topic": "nowhere", "to": "latest"}, 404, "nowhere"),
        ({"topic": "__consumer_offsets", "to": "latest"}, 400, "internal"),
        (["latest"], 400, "object"),
    ],
)
def test_reset_that_cannot_be_is_refused_and_changes_nothing(
    broker: BrokerProcess, body: object, status: int, names: str
) -> None:
    if ask(broker, "GET", "/topics/there").status == 404:
        create(broker, "there")
        produce(broker, "there", 5)
        commit(broker, "resetting", there_0=2)
    answer = ask(broker, "POST", "/groups/resetting/offsets/reset", body)
    assert answer.status == status, answer
    assert names in answer.message
    assert committed(broker, "resetting") == {0: 2}


def test_group_that_nobody_knows_is_not_found_and_not_made(broker: BrokerProcess) -> None:
    create(broker, "unread")
    body = {"topic": "unread", "to": "latest"}
    for method, path, content in (
        ("GET", "", None),
        ("GET", "/lag", None),
        ("DELETE", "", None),
        ("POST", "/offsets/reset", body),
    ):
        assert ask(broker, method, f"/groups/nobody{path}", content).status == 404
    assert "nobody" not in [each["group_id"] for each in ask(broker, "GET", "/groups").body["groups"]]
    for minutes in ("0", "-1", "x", "100000"):
        assert ask(broker, "GET", f"/groups/nobody/lag?minutes={minutes}").status == 400


def test_deleted_group_takes_its_offsets_along(broker: BrokerProcess) -> None:
    create(broker, "left")
    produce(broker, "left", 2)
    commit(broker, "leaving", left_0=1)
    assert ask(broker, "DELETE", "/groups/leaving").status == 204
    assert ask(broker, "GET", "/groups/leaving").status == 404
