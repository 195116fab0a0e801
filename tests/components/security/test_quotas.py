"""Quotas as clients feel them: an answer at once that says how long to rest, and nothing is read meanwhile."""

import urllib.request
from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.client_quotas import alter
from tests.support.topics import create
from tiered.wire import fetch, messages, produce

API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, LIST_GROUPS = 18, 19, 20, 37, 16
QUOTA_EXCEEDED = 89
WINDOW_MS = 11_000
"""Of the defaults: eleven windows of a second."""
KIB = 1 << 10


class Client(RawConnection):
    """A connection under one client id, which is what the quotas of these tests are for."""

    def __init__(self, broker: BrokerProcess, client_id: str) -> None:
        super().__init__(broker)
        self.client_id = client_id

    def send(self, api_key: int, version: int, body: bytes, *, client_id: str | None = "") -> int:
        return super().send(api_key, version, body, client_id=client_id or self.client_id)

    def produced(self, topic: str, size: int, *, version: int = 9) -> produce.ProduceResponse:
        records = batch([b"x" * size])
        wanted = [produce.TopicBatches(topic, None, [(0, records)])]
        body = produce.encode_produce_request(wanted, version, acks=1, timeout_ms=5000)
        answer = self.call(produce.API_KEY, version, body)
        return produce.decode_produce_response(answer, 0, len(answer), version)

    def fetched(self, topic: str) -> fetch.FetchResponse:
        return self.fetch_many([(topic, 0, 0, -1, 10 << 20)])

    def fetched_bytes(self, found: fetch.FetchResponse) -> int:
        records = found.topics[0].partitions[0].records
        return len(bytes(records)) if records is not None else 0  # type: ignore[arg-type]

    def is_read(self) -> bool:
        """Whether a request is answered now."""
        self.send(API_VERSIONS, 0, b"")
        return not self.answers_nothing()


@pytest.fixture
def limited(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    """A client id whose quotas `limit` sets; they end with the test."""
    name: str = request.node.name
    yield name
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    alter(broker, [((("client-id", name),), dict.fromkeys(keys))])


def limit(broker: BrokerProcess, client_id: str, quota: str, value: float) -> None:
    assert alter(broker, [((("client-id", client_id),), {quota: value})]) == [0]


def test_who_produces_too_much_is_answered_at_once_and_not_read_for_the_time_it_is_told(
    broker: BrokerProcess, limited: str
) -> None:
    topic = create(broker, "produced-too-much")
    limit(broker, limited, "producer_byte_rate", 100 * KIB)
    with Client(broker, limited) as slow, Client(broker, "another") as other:
        first = slow.produced(topic, 900 * KIB)
        assert (first.topics[0].partitions[0].error_code, first.throttle_ms) == (0, 0), "a measure may come at once"
        second = slow.produced(topic, 900 * KIB)
        assert second.topics[0].partitions[0].error_code == 0, "what is throttled was written"
        assert 1000 < second.throttle_ms <= WINDOW_MS
        assert not slow.is_read()
        assert other.produced(topic, 900 * KIB).throttle_ms == 0
        assert other.is_read()
        with Client(broker, limited) as again:  # Another connection shares the quota, and what is owed.
            assert again.is_read()
            again.receive(API_VERSIONS, 0)
            body = produce.encode_produce_request(
                [produce.TopicBatches(topic, None, [(0, batch())])], 9, acks=1, timeout_ms=5000
            )
            again.send(produce.API_KEY, 9, body)
            assert again.answers_nothing(), "connecting anew gains nothing"
            _, answer = again.receive(produce.API_KEY, 9)
            told = produce.decode_produce_response(answer, 0, len(answer), 9)
            assert told.topics[0].partitions[0].base_offset == 3, "it was written once, when the time was over"
        assert slow.receive(API_VERSIONS, 0)[0] == slow.correlation_id, "read again when the time is over"


def test_asking_as_a_broker_frees_nobody_from_quotas(broker: BrokerProcess, limited: str) -> None:
    topic = create(broker, "asked-as-a-broker")
    limit(broker, limited, "producer_byte_rate", 1)
    with Client(broker, limited) as slow:
        for epoch in range(30):
            asked = fetch.FetchRequest(1, epoch, 0, 1, 1 << 20, 0, 0, -1, [])
            answer = slow.call(fetch.API_KEY, 18, fetch.encode_fetch_request(asked, 18))
            assert fetch.decode_fetch_response(answer, 0, len(answer), 18).error_code in (31, 77)
        assert slow.produced(topic, 1000).throttle_ms == WINDOW_MS


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_the_throttle_time_has_its_place_in_every_version_of_produce(
    broker: BrokerProcess, limited: str, version: int
) -> None:
    topic = create(broker, f"throttled-{version}")
    limit(broker, limited, "producer_byte_rate", 1)
    with Client(broker, limited) as slow:
        assert slow.produced(topic, 1000, version=version).throttle_ms == WINDOW_MS


def test_who_fetches_too_much_gets_an_empty_answer_and_loses_nothing(broker: BrokerProcess, limited: str) -> None:
    topic = create(broker, "fetched-too-much")
    with Client(broker, "producer") as producer:
        for _ in range(4):
            producer.produced(topic, 400 * KIB)
    limit(broker, limited, "consumer_byte_rate", 50 * KIB)
    with Client(broker, limited) as first, Client(broker, limited) as second, Client(broker, "another") as other:
        found = first.fetched(topic)
        assert 0 < first.fetched_bytes(found) <= 550 * KIB, "one answer is no larger than what may come at once"
        while not found.throttle_ms:
            found = first.fetched(topic)
        assert first.fetched_bytes(found), "the answer that uses the quota up has its records"
        empty = second.fetched(topic)
        assert (empty.error_code, list(empty.topics)) == (0, [])
        assert 0 < empty.throttle_ms <= WINDOW_MS
        assert not second.is_read()
        full = other.fetched(topic)
        assert (full.throttle_ms, other.fetched_bytes(full) > 1600 * KIB) == (0, True)


def test_time_is_counted_and_told_in_answers_of_every_kind(broker: BrokerProcess, limited: str) -> None:
    topic = create(broker, "timed")
    limit(broker, limited, "request_percentage", 0.001)
    make = messages.request(LIST_GROUPS, 4)
    told = []
    for _ in range(3):  # The time of a request is known when it was answered: the next one is told.
        with Client(broker, limited) as slow:
            told.append(slow.ask(LIST_GROUPS, 4, make.ListGroupsRequest(states_filter=())).throttle_time)
    assert 0 < told[-1] <= WINDOW_MS
    with Client(broker, limited) as slow:
        assert slow.produced(topic, 10).throttle_ms > 0
        assert not slow.is_read()
    with Client(broker, limited) as slow:
        empty = slow.fetched(topic)
        assert (list(empty.topics), empty.throttle_ms > 0) == ([], True)
    with Client(broker, "another") as other:
        assert other.produced(topic, 10).throttle_ms == 0


def test_changes_of_topics_are_refused_to_new_clients_and_throttled_for_old_ones(
    broker: BrokerProcess, limited: str
) -> None:
    limit(broker, limited, "controller_mutation_rate", 1)

    def created(name: str, *, version: int, partitions: int) -> tuple[int, int]:
        make = messages.request(CREATE_TOPICS, version)
        topic = make.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        request = make.CreateTopicsRequest(topics=[topic], timeout=1000, validate_only=False)
        with Client(broker, limited) as client:
            answer = client.ask(CREATE_TOPICS, version, request)
        return int(answer.topics[0].error_code), answer.throttle_time

    assert created("mutated-1", version=6, partitions=15) == (0, 0)
    code, rest_ms = created("mutated-2", version=6, partitions=1)
    assert (code, 0 < rest_ms <= WINDOW_MS) == (QUOTA_EXCEEDED, True)
    code, rest_ms = created("mutated-3", version=5, partitions=1)
    assert (code, 0 < rest_ms <= WINDOW_MS) == (0, True)
    with Client(broker, limited) as client:
        make = messages.request(DELETE_TOPICS, 5)
        answer = client.ask(DELETE_TOPICS, 5, make.DeleteTopicsRequest(topic_names=["mutated-3"], timeout=1000))
        assert (int(answer.responses[0].error_code), answer.throttle_time > 0) == (QUOTA_EXCEEDED, True)
    with Client(broker, limited) as client:
        make = messages.request(CREATE_PARTITIONS, 3)
        more = make.CreatePartitionsTopic(name="mutated-3", count=2, assignments=None)
        request = make.CreatePartitionsRequest(topics=[more], timeout=1000, validate_only=False)
        answer = client.ask(CREATE_PARTITIONS, 3, request)
        assert (int(answer.results[0].error_code), answer.throttle_time > 0) == (QUOTA_EXCEEDED, True)


def test_a_quota_that_is_taken_away_or_raised_counts_at_once(broker: BrokerProcess, limited: str) -> None:
    topic = create(broker, "raised")
    limit(broker, limited, "producer_byte_rate", 1)
    with Client(broker, limited) as slow:
        assert slow.produced(topic, 100).throttle_ms > 0
    alter(broker, [((("client-id", limited),), {"producer_byte_rate": None})])
    with Client(broker, limited) as free:
        assert free.produced(topic, 100_000).throttle_ms == 0
        assert free.is_read()


def test_what_was_throttled_is_counted_by_quota(broker: BrokerProcess, limited: str) -> None:
    topic = create(broker, "counted-throttles")
    limit(broker, limited, "producer_byte_rate", 1)
    with Client(broker, limited) as slow:
        slow.produced(topic, 100)
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found = {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line.startswith("tiered_throttle")}
    assert found['tiered_throttled_total{quota="producer_byte_rate"}'] >= 1
    assert found['tiered_throttle_seconds_total{quota="producer_byte_rate"}'] >= 10


def test_no_more_topics_are_made_than_there_may_be(make_broker) -> None:  # type: ignore[no-untyped-def]
    process: BrokerProcess = make_broker(settings={"tiered.max.topics": 2}).start()
    create(process, "one")
    create(process, "two")
    make = messages.request(CREATE_TOPICS, 5)
    topic = make.CreatableTopic(name="three", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = make.CreateTopicsRequest(topics=[topic], timeout=1000, validate_only=False)
    with RawConnection(process) as connection:
        found = connection.ask(CREATE_TOPICS, 5, request).topics[0]
    assert (int(found.error_code), "tiered.max.topics" in found.error_message) == (44, True)
