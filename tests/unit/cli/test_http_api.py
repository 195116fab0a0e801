"""The catalogue's answers, however long or wrong, become segments or a failure that says what to do."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tiered.cli import main
from tiered.cli.arguments import Unnamed
from tiered.cli.brokers.own_facts import broker_versions
from tiered.cli.client import http_api
from tiered.cli.client.http_api import HttpApi
from tiered.cli.failure import CommandFailed, UsageError
from tiered.peer.broker_admin import DescribedBroker, DescribedCluster

Answer = Callable[[str], tuple[int, bytes]]


@pytest.fixture
def serving() -> Iterator[Callable[[Answer], str]]:
    """Starts HTTP servers that answer a path with a status and a body; gives their URLs."""
    servers: list[ThreadingHTTPServer] = []

    def serve(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def segment(base_offset: int, end_offset: int, tier: str, size_bytes: int = 2048) -> dict[str, Any]:
    return {
        "base_offset": base_offset, "end_offset": end_offset, "tier": tier, "state": "committed",
        "size_bytes": size_bytes, "min_timestamp_ms": -1, "max_timestamp_ms": 0,
        "object_key": None if tier == "hot" else "segments/x.seg",
    }  # fmt: skip


SEGMENTS = [segment(0, 10, "cold"), segment(10, 25, "both"), segment(25, 30, "hot"), segment(30, 30, "hot", 0)]


def catalogue(path: str, page_segments: int = 100) -> tuple[int, bytes]:
    """A broker with the topic t of one partition."""
    parts = urlsplit(path)
    if parts.path == "/api/v1/topics":
        return 200, json.dumps({"topics": [{"topic": "t", "partitions": [{"partition": 0}]}]}).encode()
    if parts.path != "/api/v1/topics/t/partitions/0/segments":
        return 404, json.dumps({"error_code": 404, "message": "no such partition"}).encode()
    start = int(parse_qs(parts.query)["start_offset"][0])
    found = [each for each in SEGMENTS if each["end_offset"] > start or each["base_offset"] == each["end_offset"]]
    answer = {"topic": "t", "partition": 0, "log_end_offset": 30, "segments": found[:page_segments]}
    return 200, json.dumps(answer).encode()


def test_segments_are_shown_with_their_tier_and_a_summary(
    serving: Callable[[Answer], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["segments", "t", "--http", serving(catalogue)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["PARTITION", "OFFSETS", "TIER", "STATE", "SIZE", "FROM", "TO"]
    assert lines[1].split() == ["0", "0..9", "cold", "committed", "2.0", "KiB", "-", "1970-01-01T00:00:00Z"]
    assert [line.split()[1:3] for line in lines[2:5]] == [["10..24", "both"], ["25..29", "hot"], ["30..", "hot"]]
    assert lines[-1] == "hot 2.0 KiB in 2 segments; both 2.0 KiB in 1 segment; cold 2.0 KiB in 1 segment"


@pytest.mark.parametrize("page_segments", [1, 2, 3, 100])
def test_a_long_catalogue_comes_page_by_page_and_each_segment_once(
    serving: Callable[[Answer], str], capsys: pytest.CaptureFixture[str], page_segments: int
) -> None:
    assert main(["segments", "t", "--json", "--http", serving(lambda path: catalogue(path, page_segments))]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["topic"] == "t"
    assert [each["base_offset"] for each in answer["partitions"][0]["segments"]][:3] == [0, 10, 25]
    assert answer["partitions"][0]["segments"][0]["object_key"] == "segments/x.seg"


def test_objects_are_shown_when_they_are_asked_for(
    serving: Callable[[Answer], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["segments", "t", "-p", "0", "--objects", "--http", serving(catalogue)]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("segments/x.seg")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nope"], "there is no topic nope;"),
        (["T"], "there is no topic T (did you mean t?);"),
        (["t", "-p", "7"], "no such partition"),
    ],
)
def test_what_is_not_there_is_a_failure(
    serving: Callable[[Answer], str], capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert main(["segments", *argv, "--http", serving(catalogue)]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer", [(200, b"<html>"), (302, b""), (200, b"[]"), (404, b"not here"), (200, b'{"topics": 5}')]
)
def test_another_server_is_recognised_as_such(serving: Callable[[Answer], str], answer: tuple[int, bytes]) -> None:
    with pytest.raises(CommandFailed, match=r"no Tiered broker|is that address a Tiered broker's"):
        HttpApi(serving(lambda _: answer)).topics()


def test_a_broker_that_is_not_there_is_a_failure_that_says_how_to_start_one() -> None:
    with pytest.raises(CommandFailed, match=r"is the broker running\? Start it with `tiered serve`"):
        HttpApi("127.0.0.1:1").topics()


def test_an_address_that_hangs_does_not_keep_a_request_from_the_others(
    serving: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []

    def answer(path: str) -> tuple[int, bytes]:
        paths.append(path)
        return 200, b'{"topics": []}'

    monkeypatch.setattr(http_api, "FIRST_TRY_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as hung:  # It accepts, and nobody reads.
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        api = HttpApi(f"{url}, 127.0.0.1:1,{serving(answer)}")
        assert (api.topics(), api.topics()) == ([], [])
        assert paths == ["/healthz", "/api/v1/topics", "/api/v1/topics"], "the choice is made once"
        monkeypatch.setattr(http_api, "TIMEOUT_S", 0.3)
        with pytest.raises(CommandFailed, match=f"cannot reach {url}: .*timed out"):
            HttpApi(f"127.0.0.1:1,{url}").topics()
    with pytest.raises(CommandFailed, match=r"cannot reach 127\.0\.0\.1:2"):
        HttpApi("127.0.0.1:1,127.0.0.1:2").topics()


@pytest.mark.parametrize("text", ["127.0.0.1:1,", "127.0.0.1:1,ftp://x", ","])
def test_each_of_several_addresses_must_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="must be a URL"):
        HttpApi(text)


def described(cluster_id: str) -> DescribedCluster:
    brokers = {
        number: DescribedBroker(broker_id=number, host="h", port=9092, rack=None, is_fenced=number == 3)
        for number in (1, 2, 3, 4)
    }
    return DescribedCluster(cluster_id=cluster_id, controller_id=1, brokers=brokers)


def test_a_version_that_no_broker_says_is_not_known_for_a_reason(serving: Callable[[Answer], str]) -> None:
    answer = {
        "cluster_id": "ours",
        "brokers": [
            {"broker_id": 1, "state": "live", "version": "1.2.3"},
            {"broker_id": 2, "state": "silent", "version": None},
            {"broker_id": 3, "state": "fenced", "version": None},
        ],
    }
    url = serving(lambda _: (200, json.dumps(answer).encode()))
    assert {number: str(version) for number, version in broker_versions(described("ours"), url).items()} == {
        1: "1.2.3",
        2: "it does not answer over HTTP",
        3: "it is out of service",
        4: "it does not answer over HTTP",
    }


def test_the_versions_of_another_cluster_are_not_taken_for_those_of_this_one(serving: Callable[[Answer], str]) -> None:
    answer = {"cluster_id": "theirs", "brokers": [{"broker_id": 1, "state": "live", "version": "1.2.3"}]}
    url = serving(lambda _: (200, json.dumps(answer).encode()))
    assert "belongs to another cluster" in str(broker_versions(described("ours"), url)[1])
    assert "cannot reach" in str(broker_versions(described("ours"), "127.0.0.1:1")[1])
    assert "must be a URL" in str(broker_versions(described("ours"), "ftp://x")[1])


def test_an_address_that_nobody_named_gets_no_password(
    serving: Callable[[Answer], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=secret\n"
    )
    logins: list[bool] = []
    plain = HttpApi._ask

    def ask(self: HttpApi, method: str, path: str, sent: object = None) -> dict[str, Any]:
        logins.extend("Authorization" in address.login for address in self._addresses)
        return plain(self, method, path, sent)

    monkeypatch.setattr(HttpApi, "_ask", ask)
    url = serving(lambda _: (200, b'{"cluster_id": "ours", "brokers": []}'))
    for named in (url, Unnamed(url)):
        broker_versions(described("ours"), named, str(config))
    assert logins == [True, False]


def test_a_password_in_the_address_is_not_in_an_error() -> None:
    with pytest.raises(CommandFailed, match=r"cannot reach http://127.0.0.1:1: ") as found:
        HttpApi("http://u:topsecret@127.0.0.1:1").topics()
    assert "topsecret" not in str(found.value)


def costs_of(topic: str, usd: float, **more: object) -> dict[str, object]:
    return {
        "topic": topic, "deleted": False, "cold_bytes": 1 << 30, "cold_objects": 1, "retired_objects": 1,
        "retired_bytes": 9, "local_bytes": 2048, "storage_usd_per_month": usd, "local_usd_per_month": 0.5,
        "total_usd_per_month": usd + 0.5, "upload_usd": 0.0002, **more,
    }  # fmt: skip


def test_costs_are_shown_the_dearest_topic_first_and_added_up(
    serving: Callable[[Answer], str], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {
        "currency": "USD",
        "prices": {"cold_usd_per_gib_month": 0.023},
        "topics": [costs_of("cheap", 0.023), costs_of("dear", 1234.0), costs_of("gone", 0.01, deleted=True)],
        "total_usd_per_month": 1235.533,
    }
    url = serving(lambda path: (200 if path == "/api/v1/cost" else 404, json.dumps(answer).encode()))
    assert main(["cost", "--http", url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["TOPIC", "dear", "cheap", "gone"]
    assert lines[1].split()[-4:] == ["1,234.00", "0.5000", "1,234.50", "0.0002"]
    assert lines[3].startswith("gone (deleted)")
    assert lines[5] == "1,235.53 USD a month for what is held now in 3 topics"
    assert lines[6] == "0.0006 USD were spent once, on the requests that uploaded these 6 objects"
    assert lines[7] == "prices: cold_usd_per_gib_month 0.023"
    assert main(["cost", "--json", "--http", url]) == 0
    assert json.loads(capsys.readouterr().out) == answer
