"""The audit log: each administrative request has its lines, refused data is summed up, and no secret is in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.raw import RawConnection
from tests.components.guarded_broker import GuardedBroker, allow
from tests.components.rights_table import KNOWN, ROWS
from tests.support.http_logins import ask
from tiered.server.http.door.rights import ON_BEHALF_OF
from tiered.server.http.messages.origin import SENDER
from tiered.server.kafka.apis import served_apis

AUDITED = {api.key for api in served_apis() if api.audit is not None}
ADMIN = [row for row in ROWS if row.key in AUDITED]
EVERYTHING = [allow("ALL", kind, "*") for kind in ("TOPIC", "GROUP", "CLUSTER")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    root = tmp_path_factory.mktemp("audited")
    with GuardedBroker(root / "data", f"tiered.audit.log={root / 'audit.log'}") as broker:
        yield broker


@pytest.fixture
def log(guarded: GuardedBroker) -> "Lines":
    guarded.rules([])
    guarded.run(guarded.broker.access.take_denied)
    return Lines(Path(guarded.broker.settings.authorization.tiered_audit_log))


class Lines:
    """What is written from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = path.stat().st_size

    def text(self) -> str:
        with self.path.open("rb") as file:
            file.seek(self._seen)
            return file.read().decode()

    def new(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


def send(guarded: GuardedBroker, key: int, name: str) -> None:
    row = next(row for row in ROWS if row.key == key)
    with RawConnection(guarded) as connection:
        connection.call(row.key, row.version, row.body(name))


@pytest.mark.parametrize("row", ADMIN, ids=str)
def test_every_administrative_request_has_its_line_refused_and_done(
    guarded: GuardedBroker, log: Lines, row: Any
) -> None:
    name = next(api.name for api in served_apis() if api.key == row.key)
    with RawConnection(guarded) as connection:
        connection.call(row.key, row.version, row.body(KNOWN))
        guarded.rules(EVERYTHING)
        connection.call(row.key, row.version, row.body(KNOWN))
    refused, done = log.new()
    assert (refused["action"], refused["outcome"], refused["error_code"]) == (name, "denied", row.denied)
    assert done["outcome"] in ("allowed", "failed")
    assert done["resource"] == refused["resource"] != ""
    assert (done["principal"], done["host"], done["via"]) == ("User:ANONYMOUS", "127.0.0.1", "kafka")
    assert done["time"].endswith("Z")


def test_changes_over_http_have_their_lines(guarded: GuardedBroker, log: Lines) -> None:
    assert ask(guarded, "POST", "/api/v1/topics", {"name": "over-http"})[0] == 403
    guarded.rules(EVERYTHING)
    assert ask(guarded, "POST", "/api/v1/topics", {"name": "over-http"})[0] == 201
    assert ask(guarded, "GET", "/api/v1/topics/over-http")[0] == 200
    assert ask(guarded, "POST", "/api/v1/snapshots", {"name": "s", "topic": "over-http"})[0] in (201, 400)
    assert ask(guarded, "DELETE", "/api/v1/topics/over-http")[0] in (204, 409)
    lines = log.new()
    assert [each["outcome"] for each in lines[:2]] == ["denied", "allowed"]
    assert {each["resource"] for each in lines} == {"TOPIC:over-http"}
    assert [each["action"] for each in lines[1:]] == [
        "POST /api/v1/topics", "POST /api/v1/snapshots", "DELETE /api/v1/topics/{topic}",
    ]  # fmt: skip


def test_only_brokers_pass_requests_on(guarded: GuardedBroker, log: Lines, tmp_path: Path) -> None:
    spoken_for = {SENDER: "2", ON_BEHALF_OF: "User%3Aann 10.0.0.7"}
    guarded.rules(EVERYTHING)
    assert ask(guarded, "POST", "/api/v1/topics", {"name": "from-a-client"}, {SENDER: "2"})[0] == 201
    assert ask(guarded, "POST", "/api/v1/topics", {"name": "for-ann"}, spoken_for)[0] == 403
    told = [(each["principal"], each["outcome"], each.get("passed_on_by")) for each in log.new()]
    assert told == [("User:ANONYMOUS", "allowed", None), ("User:ANONYMOUS", "denied", None)]
    path = tmp_path / "audit.log"
    with GuardedBroker(tmp_path / "data", f"tiered.audit.log={path}", "super.users=User:ANONYMOUS") as trusting:
        trusting.rules([allow("CREATE", "TOPIC", "for-ann", principal="User:ann")])
        assert ask(trusting, "POST", "/api/v1/topics", {"name": "for-ann"}, spoken_for)[0] == 201
        (line,) = [json.loads(each) for each in path.read_text().splitlines()]
    assert (line["principal"], line["host"], line["passed_on_by"]) == ("User:ann", "10.0.0.7", "2")


def test_values_of_settings_are_not_told(guarded: GuardedBroker, log: Lines) -> None:
    guarded.rules(EVERYTHING)
    send(guarded, 19, KNOWN)
    change = {"set": {"retention.ms": "8675309"}}
    assert ask(guarded, "PATCH", f"/api/v1/topics/{KNOWN}/configs?hidden=8675309", change)[0] == 200
    send(guarded, 44, KNOWN)
    assert log.new()[-1]["configs"] == ["retention.ms"]
    assert "8675309" not in log.text()


def test_refused_data_is_summed_up_and_not_told_one_by_one(guarded: GuardedBroker, log: Lines) -> None:
    for _ in range(5):
        send(guarded, 0, KNOWN)
    assert log.new() == []
    guarded.run(guarded.broker.audit.sum_up)
    (line,) = log.new()
    assert (line["action"], line["operation"], line["resource_type"], line["count"]) == ("summary", "WRITE", "TOPIC", 5)


def test_whoever_goes_away_before_the_answer_is_told_of_all_the_same(guarded: GuardedBroker, log: Lines) -> None:
    guarded.rules(EVERYTHING)
    row = next(row for row in ROWS if row.key == 19)
    with RawConnection(guarded) as connection:
        connection.send(row.key, row.version, row.body("gone-away"))
    while not log.new():
        with RawConnection(guarded) as connection:
            connection.call(18, 0, b"")
    (line,) = log.new()
    assert (line["resource"], line["outcome"] in ("allowed", "unknown")) == ("TOPIC:gone-away", True)
