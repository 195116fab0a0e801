"""The search through a topic's records over HTTP: what it finds, its bounds, and that it ends with its client."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.clients.http_api import ask
from tests.clients.listener import Listener
from tests.clients.raw import RawConnection
from tests.components.batches import FIRST_MS, batch
from tests.components.guarded_broker import GuardedBroker, allow
from tests.components.http.searches import SearchResult
from tests.components.rights_table import ABSENT, KNOWN
from tests.components.tiers import create, eventually
from tiered.broker.people import record_search
from tiered.formats.record_batch import Compression
from tiered.server.http.api import search

BOMB = "(x?a?){490}b"
"""RE2 takes a second for each 64 KiB of a value that consists of this letter."""


def produce(broker: BrokerProcess, topic: str, data: bytes, partition: int = 0) -> None:
    with RawConnection(broker, timeout_s=60) as connection:
        assert connection.produce(topic, data, partition=partition).error_code == 0


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess) -> BrokerProcess:
    """Two partitions of 500 records each, in batches of every codec."""
    create(broker, "orders", 2)
    for number in range(10):
        values = [b'{"id": %d, "level": "%s"}' % (order, b"ERROR" if order % 50 == 7 else b"INFO")
                  for order in range(number * 100, number * 100 + 100)]  # fmt: skip
        data = batch(values, compression=Compression(number % 5), first_ms=FIRST_MS + 100_000 * number)
        produce(broker, "orders", data, partition=number % 2)
    return broker


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"text": '"ERROR"'}, 20),
        ({"regex": r'"level": "ERR(OR)?"'}, 20),
        ({"json_path": "level", "json_value": "ERROR"}, 20),
        ({"json_path": "$.id", "json_value": "507"}, 1),
        ({"text": "ERROR", "regex": r": \d07,"}, 9),
        ({"header": "absent"}, 0),
        ({"key": "absent"}, 0),
        ({"text": "ERROR", "partition": "1"}, 10),
        ({"from_ms": FIRST_MS + 250_000, "to_ms": FIRST_MS + 304_000}, 55),
        ({"from_ms": FIRST_MS + 10**9}, 0),
        ({"to_ms": FIRST_MS - 1}, 0),
    ],
)
def test_all_partitions_are_searched_by_all_that_the_query_names(
    orders: BrokerProcess, query: dict[str, Any], count: int
) -> None:
    result = SearchResult(orders, "orders", **query)
    assert len(result.values) == result.end["matches"] == count
    assert result.end["reason"] == ("time" if "to_ms" in query else "done")
    assert all(place["next_offset"] == place["end_offset"] for place in result.end["partitions"])


def test_progress_says_how_far_it_looked_and_what_it_read(orders: BrokerProcess) -> None:
    result = SearchResult(orders, "orders", text="ERROR")
    assert result.end["looked_records"] == 1000
    assert result.end["read_bytes"] > 1000
    assert [(place["start_offset"], place["end_offset"]) for place in result.end["partitions"]] == [(0, 500), (0, 500)]
    assert any(event.name == "progress" for event in result.events)


def test_a_search_goes_on_where_it_ended_without_loss_or_repeats(orders: BrokerProcess) -> None:
    whole, values, last_id, tries = SearchResult(orders, "orders", text="ERROR").values, [], "", 0
    while True:
        part = SearchResult(orders, "orders", text="ERROR", limit=3, last_id=last_id)
        values += part.values
        last_id, tries = part.last_id, tries + 1
        if part.end["reason"] == "done":
            break
        assert (part.end["reason"], len(part.values)) == ("limit", 3)
    assert sorted(values) == whole
    assert tries == 7


def test_records_of_a_batch_that_cannot_be_shown_are_named_and_the_search_goes_on(broker: BrokerProcess) -> None:
    create(broker, "spoilt")
    batches = [batch([value], compression=Compression.ZSTD) for value in (b"one", bytes(40 << 20), b"two")]
    for data in batches:
        produce(broker, "spoilt", data)
    for query, values in ({"regex": "one|two"}, [b"one", b"two"]), ({"text": "absent"}, []):
        result = SearchResult(broker, "spoilt", **query)
        assert result.values == values
        assert result.end["reason"] == "trouble"
        assert "offsets 1 to 1" in result.troubles[0].data["message"]
        assert result.end["read_bytes"] == sum(map(len, batches)), (
            "what cannot be shown was read all the same, and once"
        )
        assert result.end["looked_records"] == 2


def test_both_tiers_are_searched_and_the_times_of_both_are_known(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"tiered.upload.interval.ms": 50}).start()
    create(broker, "tiers", remote_copy_lag_ms=0, segment_bytes=4000, local_retention_bytes=1, retention_ms=-1)
    values = [b"%d " % number + b"x" * 1900 for number in range(30)]
    for number, value in enumerate(values):
        produce(broker, "tiers", batch([value], first_ms=FIRST_MS + 1000 * number))
    broker.wait_cold("tiers", end_offset=broker.segments("tiers")["segments"][-1]["base_offset"], only=True)
    hot = broker.segments("tiers")["local_log_start_offset"]
    assert 3 < hot < 30
    assert SearchResult(broker, "tiers", text="x", limit=1000).values == sorted(values)
    for first, last in ((3, hot), (hot, 29), (1, 2)):
        result = SearchResult(broker, "tiers", from_ms=FIRST_MS + 1000 * first, to_ms=FIRST_MS + 1000 * last)
        assert result.values == sorted(values[first : last + 1])
        assert result.end["partitions"][0]["start_offset"] == first


def test_records_that_were_aborted_are_found_by_who_reads_uncommitted_alone(broker: BrokerProcess) -> None:
    create(broker, "ledger")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "ledger", "log_level": 0})
    producer.init_transactions(30)
    for value, end in ((b"kept", producer.commit_transaction), (b"withdrawn", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("ledger", value)
        producer.flush(30)
        end(30)
    assert SearchResult(broker, "ledger").values == [b"kept"]
    assert SearchResult(broker, "ledger", isolation="read_uncommitted").values == [b"kept", b"withdrawn"]


def test_records_whose_producer_was_late_are_found_though_newer_ones_lie_before_them(broker: BrokerProcess) -> None:
    create(broker, "late")
    for second in (0, 40, 10, 200, 5):
        produce(broker, "late", batch([b"%d" % second], first_ms=FIRST_MS + 1000 * second))
    result = SearchResult(broker, "late", from_ms=FIRST_MS, to_ms=FIRST_MS + 20_000)
    assert result.values == [b"0", b"10"], "what is a minute newer ends it, and is named as the reason"
    assert (result.end["reason"], result.end["partitions"][0]["end_offset"]) == ("time", 3)
    first = SearchResult(broker, "late", from_ms=FIRST_MS, to_ms=FIRST_MS + 20_000, limit=1)
    rest = SearchResult(broker, "late", from_ms=FIRST_MS, to_ms=FIRST_MS + 20_000, last_id=first.last_id)
    assert (first.values, rest.values, rest.end["reason"]) == ([b"0"], [b"10"], "time"), "the rest ends there as well"
    behind = SearchResult(broker, "late", from_ms=FIRST_MS, to_ms=FIRST_MS + 20_000, last_id=result.last_id)
    assert (behind.values, behind.end["reason"]) == ([b"5"], "done")


def test_each_record_of_a_large_batch_is_looked_at_once_however_slow_the_expression(broker: BrokerProcess) -> None:
    create(broker, "slow")
    produce(broker, "slow", batch([b"a" * 2_000] * 20 + [b"b"], compression=Compression.ZSTD))
    result = SearchResult(broker, "slow", regex=BOMB)
    assert (result.values, result.end["looked_records"]) == ([b"b"], 21)
    assert result.end["read_bytes"] > 0


@pytest.mark.parametrize(
    ("query", "status", "names"),
    [
        ("regex=(", 400, "regular expression"),
        ("regex=a{999}{999}", 400, "regular expression"),
        ("json_path=..", 400, "json_path"),
        ("json_value=1", 400, "json_path"),
        ("header_value=1", 400, "header"),
        ("from_ms=2&to_ms=1", 400, "from_ms"),
        ("limit=1001", 400, "limit"),
        ("text=" + "x" * 501, 400, "text"),
        ("partition=2", 404, "partition"),
        ("last_event_id=5:1", 400, "partition 5"),
        ("key=a&key_prefix=a", 400, "key"),
    ],
)
def test_a_search_that_means_nothing_is_refused_by_name(
    orders: BrokerProcess, query: str, status: int, names: str
) -> None:
    answer = ask(orders, "GET", f"/topics/orders/search?{query}")
    assert answer.status == status, answer
    assert names in answer.message


# Who may, and how many


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded") / "data", "super.users=User:root") as broker:
        broker.rules([allow("ALL", kind, "*") for kind in ("TOPIC", "CLUSTER")])
        create(cast(BrokerProcess, broker), KNOWN)
        with RawConnection(broker) as connection:
            connection.produce(KNOWN, batch([b"a" * 60_000] * 12))
        yield broker


def eventually_running(guarded: GuardedBroker, count: int) -> None:
    eventually(lambda: running(guarded) == count, f"{count} searches run")


def running(guarded: GuardedBroker) -> int:
    return guarded.run(lambda: int(guarded.broker.searches.running))


def test_who_may_not_read_the_topic_has_nothing_read_and_learns_nothing(guarded: GuardedBroker) -> None:
    guarded.rules([allow("DESCRIBE", "TOPIC", "*")])
    for topic in (KNOWN, ABSENT):
        with Listener(guarded, topic, route="search") as listener:
            assert listener.status == 403
    assert running(guarded) == 0


def test_a_search_whose_client_hangs_up_reads_no_further(guarded: GuardedBroker) -> None:
    guarded.rules([allow("READ", "TOPIC", KNOWN)])
    with Listener(guarded, KNOWN, route="search", regex=BOMB) as listener:
        next(listener.events())
        eventually_running(guarded, 1)
    eventually_running(guarded, 0)
    eventually(lambda: guarded.run(lambda: guarded.broker.searches.pending) == 0, "no thread decodes for who has gone")


def test_a_search_ends_with_the_right_to_read(guarded: GuardedBroker) -> None:
    guarded.rules([allow("READ", "TOPIC", KNOWN)])
    with Listener(guarded, KNOWN, route="search", regex=BOMB) as listener:
        events = listener.events()
        next(events)
        guarded.rules([])
        *_, last = events
    assert (last.name, last.data["reason"]) == ("end", "refused")


def test_one_search_of_a_principal_runs_at_a_time_and_delays_nobody_else(guarded: GuardedBroker) -> None:
    guarded.rules([allow("READ", "TOPIC", KNOWN), allow("WRITE", "TOPIC", KNOWN)])
    with ThreadPoolExecutor(1) as threads:
        with Listener(guarded, KNOWN, route="search", regex=BOMB) as first:
            next(first.events())
            second = threads.submit(SearchResult, guarded, KNOWN, text="absent")
            with RawConnection(guarded) as connection:
                for _ in range(10):
                    assert connection.produce(KNOWN, batch()).error_code == 0
            assert (running(guarded), second.done()) == (1, False)
        assert second.result().end["reason"] == "done"


@pytest.mark.parametrize(("bound", "value"), [("MAX_RECORDS", 4), ("MAX_BYTES", 1), ("MAX_MS", 1.0)])
def test_a_search_that_reaches_a_bound_says_so_and_goes_on(
    guarded: GuardedBroker, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    guarded.rules([allow("READ", "TOPIC", KNOWN)])
    monkeypatch.setattr(search, bound, value)
    for name in ("PIECE_MS", "MAX_PIECE_MS"):
        monkeypatch.setattr(record_search, name, 0.0)
    first = SearchResult(guarded, KNOWN, text="absent")
    assert first.end["reason"] == "bounds"
    looked = first.end["looked_records"]
    monkeypatch.undo()
    rest = SearchResult(guarded, KNOWN, text="absent", last_id=first.last_id)
    (place,) = rest.end["partitions"]
    assert rest.end["reason"] == "done"
    assert 0 <= looked == place["start_offset"] < place["end_offset"]
    assert rest.end["looked_records"] == place["end_offset"] - looked


def test_a_client_that_does_not_read_what_was_found_is_cut_off(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"tiered.tail.stall.timeout.ms": 500}).start()
    create(broker, "unread")
    for _ in range(20):
        produce(broker, "unread", batch([bytes(250_000)] * 3))
    with Listener(broker, "unread", route="search", field_bytes=262144, receive_buffer_bytes=4096):
        assert SearchResult(broker, "unread", text="absent").end["reason"] == "done", (
            "the second waits for the first's end"
        )


def test_a_client_that_reads_nothing_at_the_very_end_is_cut_off_too(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"tiered.tail.stall.timeout.ms": 500}).start()
    create(broker, "unread")
    produce(broker, "unread", batch([bytes(40_000)]))
    for _ in range(4):
        with Listener(broker, "unread", route="search", field_bytes=262144, receive_buffer_bytes=4096):
            assert SearchResult(broker, "unread", text="absent").end["reason"] == "done"
        produce(broker, "unread", batch([bytes(40_000)]))


def test_a_broker_that_allows_no_searches_says_so(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"tiered.http.max.searches": 0}).start()
    create(broker, "orders")
    answer = ask(broker, "GET", "/topics/orders/search")
    assert (answer.status, "tiered.http.max.searches" in answer.message) == (403, True)
