"""Answers about another broker whose address belongs to another process, or that is unregistered while it is asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from tests.broker_process import BrokerProcess
from tests.components.guarded_broker import GuardedBroker
from tests.components.http.searches import SearchResult
from tests.components.tiers import create
from tests.support.http_logins import ask
from tiered.ids import TopicPartition

RIGHT = {
    "version": "1",
    "health": {"serving": True},
    "totals": dict.fromkeys(("local_bytes", "cold_bytes", "produced_bytes", "fetched_bytes", "connections_open"), 1),
    "activity": {"cpu_s": 1.5},
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    data: Path = tmp_path_factory.mktemp("neighbours") / "data"
    with GuardedBroker(data, "super.users=User:ANONYMOUS") as broker:
        yield broker


def answer_with_neighbour(guarded: GuardedBroker, register: Callable[[], None], path: str) -> Any:
    """The answer at `path` in which broker 2 is known: this broker forgets it with any change that it reads in SQL."""
    for _ in range(20):
        register()
        status, answer = ask(guarded, "GET", path)
        if status == 200 and 2 in [shown["broker_id"] for shown in answer.get("brokers", [answer])]:
            return answer
        assert status in (200, 404), answer
    raise AssertionError("broker 2 was forgotten each time")


@contextmanager
def neighbour(
    guarded: GuardedBroker, answer: object, meanwhile: Callable[[], object] = lambda: None
) -> Iterator[Callable[[], None]]:
    """Another process at the address of broker 2, which gives this answer to every request after `meanwhile`; what
    makes broker 2 known."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            meanwhile()
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    image = guarded.broker.image
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        row = replace(image.brokers[1], broker_id=2, http_host="127.0.0.1", http_port=server.server_port)
        try:
            yield lambda: guarded.run(lambda: image.put_brokers([row], 0.0))
        finally:
            guarded.run(lambda: image.keep_brokers({1}))
            server.shutdown()


def test_what_a_broker_says_of_itself_is_shown(guarded: GuardedBroker) -> None:
    with neighbour(guarded, RIGHT) as register:
        answer = answer_with_neighbour(guarded, register, "/api/v1/brokers/2")
    assert (answer["activity"], answer["totals"]) == (RIGHT["activity"], RIGHT["totals"])


@pytest.mark.parametrize("answer", [[], "x", {}, {**RIGHT, "totals": 1, "activity": []}, {**RIGHT, "health": None}])
def test_of_a_broker_whose_address_gives_other_json_nothing_is_shown(guarded: GuardedBroker, answer: object) -> None:
    with neighbour(guarded, answer) as register:
        shown = answer_with_neighbour(guarded, register, "/api/v1/brokers/2")
        assert (shown["activity"], shown["totals"], shown["version"]) == (None, None, None)
        shown = answer_with_neighbour(guarded, register, "/api/v1/cluster")
        assert [broker["version"] is None for broker in shown["brokers"]] == [False, True]


def test_a_broker_that_is_unregistered_while_it_is_asked_is_not_there(guarded: GuardedBroker) -> None:
    def unregister() -> None:
        guarded.run(lambda: guarded.broker.image.keep_brokers({1}))

    with neighbour(guarded, RIGHT, meanwhile=unregister) as register:
        register()
        status, answer = ask(guarded, "GET", "/api/v1/brokers/2")
    assert (status, "broker 2 is not registered" in answer["message"]) == (404, True)


@pytest.fixture(scope="module")
def searched(guarded: GuardedBroker) -> None:
    create(cast(BrokerProcess, guarded), "searched")


@pytest.mark.parametrize(
    ("partitions", "reason", "end", "names"),
    [
        ([], "bounds", "bounds", ""),
        ([], "shutting_down", "trouble", "broker 2 has ended its search"),
        ([{"partition": 5, "start_offset": 0, "next_offset": 9, "end_offset": 9}], "done", "trouble", "another form"),
        ([{"partition": 0, "start_offset": 0, "next_offset": "x", "end_offset": 9}], "done", "trouble", "another form"),
        ([{"partition": 0, "start_offset": 0, "next_offset": 9, "end_offset": 9}], "done", "done", ""),
    ],
)
def test_a_search_is_done_only_where_the_leader_says_so_of_its_partitions(
    guarded: GuardedBroker, searched: None, partitions: list[dict[str, Any]], reason: str, end: str, names: str
) -> None:
    topic = guarded.run(lambda: guarded.broker.topics.by_name("searched"))
    fields = {"topic_id": str(topic.topic_id), "looked_records": 0, "read_bytes": 0, "matches": 0}
    fields |= {"partitions": partitions, "reason": reason, "message": "as I say", "troubles": []}
    event = b"event: end\nid: \ndata: %s\n\n" % json.dumps(fields).encode()
    image = guarded.broker.image

    def lead() -> None:
        (row,) = image.rows_of(topic.topic_id)
        image.put_row(replace(row, leader=2))

    with neighbour(guarded, event) as register:
        while True:  # This broker forgets the other with any change that it reads in SQL.
            register()
            guarded.run(lead)
            result = SearchResult(guarded, "searched")
            leader = image.leader_of(TopicPartition(topic.topic_id, 0))
            if leader is not None and leader.broker_id == 2:
                break
    assert result.end["reason"] == end
    assert all(names in trouble.data["message"] for trouble in result.troubles)
    assert bool(result.troubles) == bool(names)
