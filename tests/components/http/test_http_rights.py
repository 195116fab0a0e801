"""The HTTP door under access control lists: every route has its rights, lists show what may be seen, no name leaks."""

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.guarded_broker import GuardedBroker, allow
from tests.components.rights_table import ABSENT, KNOWN, ROWS
from tests.support.http_logins import ask, late_request
from tests.support.http_routes import BODIES, PASSWORD, body_of, path_of
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.principal import ANONYMOUS
from tiered.server.http.door.rights import ON_BEHALF_OF, OPEN, RIGHTS
from tiered.server.http.routes import ROUTES

ALONE = {
    "GET /", "GET /console/{folder}/{file}", "GET /openapi.json", "GET /api/v1/session", "GET /healthz", "GET /readyz",
    "GET /v3/clusters", "GET /v3/clusters/{cluster_id}", "GET /v3/clusters/{cluster_id}/brokers",
    "GET /v3/clusters/{cluster_id}/brokers/{broker_id}",
}  # fmt: skip
"""Routes that tell nothing which is not told to everybody."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded") / "data", "super.users=User:root") as broker:
        broker.rules([allow("ALL", kind, "*") for kind in ("TOPIC", "GROUP", "CLUSTER")])
        rows = {row.key: row for row in ROWS}
        with RawConnection(broker) as connection:
            for key in (19, 8):
                connection.call(key, rows[key].version, rows[key].body(KNOWN))
            connection.produce(KNOWN, batch())
        yield broker


@pytest.fixture(autouse=True)
def nothing(guarded: GuardedBroker) -> None:
    guarded.rules([])


def test_every_route_is_in_the_table_of_rights() -> None:
    assert {f"{route.method} {route.path}" for route in ROUTES} == RIGHTS.keys()


@pytest.mark.parametrize("route", sorted(each for each in RIGHTS if RIGHTS[each] is not OPEN or each in BODIES))
def test_without_its_rights_a_request_is_403_says_which_and_tells_nothing_else(
    guarded: GuardedBroker, route: str
) -> None:
    method, template = route.split(" ", 1)
    known = ask(guarded, method, path_of(guarded.broker.cluster_id, template, KNOWN), body_of(route))
    absent = ask(guarded, method, path_of(guarded.broker.cluster_id, template, ABSENT), body_of(route))
    assert known[0] == 403
    assert "the right " in known[1]["message"]
    assert known[1]["message"].replace(KNOWN, ABSENT) == absent[1]["message"].replace(KNOWN, ABSENT)
    topic = guarded.broker.topics.find(KNOWN)
    assert (topic.partition_count, dict(topic.overrides)) == (1, {})
    assert guarded.broker.topics.find(ABSENT) is None


def test_a_right_that_went_while_a_body_was_on_its_way_is_missing_when_the_body_is_there(
    guarded: GuardedBroker,
) -> None:
    guarded.rules([allow("ALL", kind, "*") for kind in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")])
    cluster_id = guarded.broker.cluster_id
    late: dict[str, tuple[http.client.HTTPConnection, bytes]] = {}
    for route in sorted(route for route in RIGHTS if body_of(route) is not None):
        method, template = route.split(" ", 1)
        body = json.dumps(body_of(route)).encode()
        connection = late_request(guarded, method, path_of(cluster_id, template, KNOWN), body)
        late[route] = connection, body[-1:]
    guarded.rules([])
    statuses = {}
    for route, (connection, last_byte) in late.items():
        with closing(connection):
            connection.send(last_byte)
            statuses[route] = connection.getresponse().status
    assert statuses == dict.fromkeys(late, 403)
    assert guarded.broker.topics.find(ABSENT) is None


def test_who_is_deleted_while_its_body_is_on_its_way_changes_nothing(tmp_path: Path) -> None:
    settings = ("super.users=User:ANONYMOUS;User:root;User:ann", "tiered.http.authentication=basic")
    with GuardedBroker(tmp_path / "data", *settings) as broker:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.kafka_port}", "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        for name in ("root", "ann"):
            upsertion = UserScramCredentialUpsertion(name, info, PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])[name].result(10)
        root, ann = (
            {"Authorization": f"Basic {b64encode(f'{name}:{PASSWORD}'.encode()).decode()}"} for name in ("root", "ann")
        )
        body = json.dumps({"name": "mallory", "password": PASSWORD}).encode()
        with closing(late_request(broker, "POST", "/api/v1/users", body, ann)) as connection:
            assert ask(broker, "DELETE", "/api/v1/users/ann", headers=root)[0] == 204
            connection.send(body[-1:])
            assert connection.getresponse().status == 401
        assert [user["name"] for user in ask(broker, "GET", "/api/v1/users", headers=root)[1]["users"]] == ["root"]


@pytest.mark.parametrize("route", sorted(each for each in RIGHTS if RIGHTS[each] is not OPEN and each[:3] == "GET"))
def test_with_exactly_its_rights_a_request_is_answered(guarded: GuardedBroker, route: str) -> None:
    guarded.rules(
        allow(need.operation.name, need.kind.name, KNOWN if need.parameter else "kafka-cluster")
        for need in RIGHTS[route]
    )
    method, template = route.split(" ", 1)
    if template.endswith("/tail"):
        return  # Has no end; its rights are those of records.
    assert ask(guarded, method, path_of(guarded.broker.cluster_id, template, KNOWN))[0] != 403


@pytest.mark.parametrize("end", ["commits", "aborts"])
def test_who_may_write_to_no_transactional_id_has_no_body_read(guarded: GuardedBroker, end: str) -> None:
    path = f"/api/v1/transaction-{end}"
    assert ask(guarded, "POST", path, {"no": "such thing"})[0] == 403
    guarded.rules([allow("WRITE", "TRANSACTIONAL_ID", ABSENT)])
    assert ask(guarded, "POST", path, {"no": "such thing"})[0] == 400


def test_lists_show_what_may_be_described(guarded: GuardedBroker) -> None:
    lists = ["/api/v1/topics", "/api/v1/groups", "/api/v1/transactions", "/api/v1/snapshots", "/api/v1/pins"]
    lists += [
        path_of(guarded.broker.cluster_id, f"/v3/clusters/{{cluster_id}}/{kind}", "")
        for kind in ("topics", "consumer-groups")
    ]
    for path in lists:
        status, answer = ask(guarded, "GET", path)
        assert status == 200
        assert KNOWN not in json.dumps(answer)
    guarded.rules([allow("DESCRIBE", "TOPIC", KNOWN), allow("DESCRIBE", "GROUP", KNOWN)])
    for path in (*lists[:2], *lists[5:]):
        assert KNOWN in json.dumps(ask(guarded, "GET", path)[1]), path


def test_what_is_for_everybody_names_nothing(guarded: GuardedBroker) -> None:
    for route in ALONE - {"GET /console/{folder}/{file}"}:
        status, answer = ask(guarded, "GET", path_of(guarded.broker.cluster_id, route.split(" ", 1)[1], KNOWN))
        assert status == 200
        assert KNOWN not in str(answer)


def test_a_group_tells_the_names_of_topics_to_who_may_see_them(guarded: GuardedBroker) -> None:
    guarded.rules([allow("DESCRIBE", "GROUP", KNOWN)])
    assert ask(guarded, "GET", f"/api/v1/groups/{KNOWN}")[1]["offsets"] == []
    guarded.rules([allow("DESCRIBE", "GROUP", KNOWN), allow("DESCRIBE", "TOPIC", KNOWN)])
    assert ask(guarded, "GET", f"/api/v1/groups/{KNOWN}")[1]["offsets"][0]["topic"] == KNOWN


def test_a_pin_is_its_topics_readers_and_nobody_elses(guarded: GuardedBroker) -> None:
    guarded.rules([allow("READ", "TOPIC", KNOWN)])
    status, pin = ask(guarded, "POST", "/api/v1/pins", {"topic": KNOWN})
    assert status == 201
    path = f"/api/v1/pins/{pin['pin_id']}"
    guarded.rules([])
    for method, body in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        for rules, code in (([], 404), ([allow("DESCRIBE", "TOPIC", KNOWN)], 403)):
            guarded.rules(rules)
            status, answer = ask(guarded, method, path, body)
            assert status == code
            assert KNOWN not in answer["message"]
    guarded.rules([allow("READ", "TOPIC", KNOWN)])
    assert ask(guarded, "DELETE", path)[0] == 204


def test_a_key_of_commits_is_guarded_as_a_transactional_id_of_its_name_is(guarded: GuardedBroker) -> None:
    """Or anybody could keep a job from committing, for what comes under a used key is aborted."""
    body = {"key": "nightly/42", "transactions": []}
    guarded.rules([allow("WRITE", "TRANSACTIONAL_ID", KNOWN)])
    assert ask(guarded, "POST", "/api/v1/transaction-commits", body)[0] == 403
    guarded.rules([allow("WRITE", "TRANSACTIONAL_ID", "nightly/42")])
    assert ask(guarded, "POST", "/api/v1/transaction-commits", body) == (200, {"committed": True})


def test_nobody_learns_of_a_snapshot_whose_topic_it_may_not_know(guarded: GuardedBroker) -> None:
    guarded.rules([allow("ALTER", "TOPIC", KNOWN)])
    assert ask(guarded, "POST", "/api/v1/snapshots", {"name": "hidden-one", "topic": KNOWN})[0] == 201
    guarded.rules([])
    for method in ("GET", "DELETE"):
        status, there = ask(guarded, method, "/api/v1/snapshots/hidden-one")
        assert status == 404
        _, absent = ask(guarded, method, "/api/v1/snapshots/absent-one")
        assert there["message"].replace("hidden", "absent") == absent["message"]
    guarded.rules([allow("DESCRIBE", "TOPIC", KNOWN)])
    assert ask(guarded, "DELETE", "/api/v1/snapshots/hidden-one")[0] == 403
    guarded.rules([allow("ALTER", "TOPIC", KNOWN)])
    assert ask(guarded, "DELETE", "/api/v1/snapshots/hidden-one")[0] == 204


def test_nobody_but_a_super_user_speaks_for_somebody_else(guarded: GuardedBroker) -> None:
    told = {"X-Tiered-Forwarded-By": "2", ON_BEHALF_OF: f"{quote('User:root', safe='')} 10.0.0.1"}
    guarded.rules([allow("ALL", kind, "*") for kind in ("TOPIC", "GROUP", "CLUSTER")])
    status, answer = ask(guarded, "GET", f"/api/v1/topics/{KNOWN}", headers=told)
    assert status == 403
    assert "brokers alone" in answer["message"]


def test_a_request_that_a_broker_passes_on_has_its_clients_rights(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("trusting") / "data"
    with GuardedBroker(data, "super.users=User:ANONYMOUS") as trusting:
        assert ask(trusting, "POST", "/api/v1/topics", {"name": KNOWN})[0] == 201
        trusting.rules([allow("READ", "TOPIC", KNOWN, principal="User:ann", host="10.0.0.9")])

        def passed_on(principal: str, host: str) -> int:
            on_behalf_of = f"{quote(principal, safe='')} {host}"
            headers = {"X-Tiered-Forwarded-By": "2", ON_BEHALF_OF: on_behalf_of}
            return ask(trusting, "GET", f"/api/v1/topics/{KNOWN}", headers=headers)[0]

        assert passed_on("User:ann", "10.0.0.9") == 200
        assert passed_on("User:ann", "10.0.0.8") == 403
        assert passed_on("User:bob", "10.0.0.9") == 403
        assert passed_on("nonsense", "x") == 403


def test_refusals_are_counted(guarded: GuardedBroker) -> None:
    def count() -> float:
        guarded.rules([allow("DESCRIBE", "CLUSTER", "kafka-cluster")])
        lines = ask(guarded, "GET", "/metrics")[1].decode().splitlines()
        guarded.rules([])
        return float(next(line for line in lines if line.startswith("tiered_authorization_denied_total ")).split()[1])

    before = count()
    assert ask(guarded, "GET", "/metrics")[0] == 403
    assert ask(guarded, "DELETE", f"/api/v1/topics/{KNOWN}")[0] == 403
    assert count() == before + 2


def test_an_open_stream_of_records_ends_with_the_right_to_write(guarded: GuardedBroker) -> None:
    guarded.rules([allow("WRITE", "TOPIC", KNOWN)])
    connection = http.client.HTTPConnection("127.0.0.1", guarded.http_port, timeout=30)
    connection.putrequest("POST", f"/v3/clusters/{guarded.broker.cluster_id}/topics/{KNOWN}/records")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    connection.send(b"2\r\n{}\r\n")
    answer = connection.getresponse()
    assert json.loads(answer.readline())["error_code"] == 200
    guarded.rules([])
    connection.send(b"2\r\n{}\r\n")
    assert json.loads(answer.readline())["error_code"] == 40301
    connection.close()


def test_an_open_tail_ends_with_the_right_to_read(guarded: GuardedBroker) -> None:
    guarded.rules([allow("READ", "TOPIC", KNOWN)])
    connection = http.client.HTTPConnection("127.0.0.1", guarded.http_port, timeout=30)
    connection.request("GET", f"/api/v1/topics/{KNOWN}/tail?from=latest")
    answer = connection.getresponse()
    assert answer.status == 200
    guarded.rules([])
    said = answer.read().decode()
    assert "event: record" not in said
    assert json.loads(said[said.index("event: end") :].partition("data: ")[2])["reason"] == "refused"
    connection.close()


def test_a_rule_about_an_address_holds_whatever_link_it_is_on(guarded: GuardedBroker) -> None:
    everybody = allow("READ", "TOPIC", KNOWN)
    guarded.rules([everybody, allow("READ", "TOPIC", KNOWN, host="fe80::1", permission="DENY")])

    def may(host: str) -> bool:
        rights = guarded.run(lambda: guarded.broker.access.rights(ANONYMOUS, host))
        return bool(guarded.run(lambda: rights.may(Operation.READ, ResourceType.TOPIC, KNOWN)))

    assert [may(host) for host in ("fe80::2%eth0", "fe80::1", "fe80::1%eth0")] == [True, False, False]


def test_retention_is_told_to_those_who_may_see_the_configs(guarded: GuardedBroker) -> None:
    def retention() -> object:
        (listed,) = ask(guarded, "GET", "/api/v1/topics")[1]["topics"]
        return listed["retention_ms"]

    guarded.rules([allow("DESCRIBE", "TOPIC", KNOWN)])
    assert retention() is None
    guarded.rules([allow("DESCRIBE", "TOPIC", KNOWN), allow("DESCRIBE_CONFIGS", "TOPIC", KNOWN)])
    assert retention() == 604_800_000
