"""Logins over HTTP: names, passwords and tokens; what is open, and requests that one broker passes on to another."""

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from joserfc import jwt
from joserfc.jwk import ECKey

from tiered.cli import main
from tiered.testing import LocalCluster, cluster

KEY = ECKey.generate_key("P-256", {"kid": "one"})
PASSWORDS = {"alice": "secret:of älice", "brokers": "swordfish of brokers"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "jwks.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    (folder / "brokers").write_text(PASSWORDS["brokers"])
    settings = {
        "tiered.http.authentication": "basic",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/jwks.json",
        "sasl.oauthbearer.expected.audience": "tiered",
        "tiered.sasl.inter.broker.username": "brokers",
        "tiered.sasl.inter.broker.password": f"file:{folder}/brokers",
        "connection.failed.authentication.delay.ms": 10,
    }
    with cluster(brokers=2, topics={"numbers": 4}, settings=settings) as c:
        admin = AdminClient({"bootstrap.servers": c.bootstrap, "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        changes = [UserScramCredentialUpsertion(name, info, password.encode()) for name, password in PASSWORDS.items()]
        for answer in admin.alter_user_scram_credentials(list(changes)).values():
            answer.result(10)
        yield c


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


ALICE = basic("alice", PASSWORDS["alice"])


def bearer(lifetime_s: float) -> str:
    claims = {"sub": "bob", "aud": "tiered", "exp": time.time() + lifetime_s}
    return f"Bearer {jwt.encode({'alg': 'ES256', 'kid': 'one'}, claims, KEY)}"


def get(url: str, login: str | None = None, *, method: str = "GET") -> tuple[int, Any, str | None]:
    headers = {} if login is None else {"Authorization": login}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=20) as answer:
            body = answer.read()
            return answer.status, body, None
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers.get("WWW-Authenticate")


@pytest.mark.parametrize("path", ["/", "/console/js/api.js", "/metrics", "/api/v1/topics", "/v3/clusters", "/nothing"])
def test_without_a_login_nothing_is_shown_and_a_browser_asks_for_one(guarded: LocalCluster, path: str) -> None:
    status, body, challenge = get(guarded.http_url + path)
    assert (status, challenge) == (401, 'Basic realm="tiered", charset="UTF-8"')
    assert b"numbers" not in body
    assert get(guarded.http_url + path, method="DELETE")[0] == 401


def test_whether_a_broker_lives_is_open_and_no_partition_is_named(
    guarded: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get(f"{guarded.http_url}/healthz")[0] == 200
    named = {"serving": True, "fenced": False, "metadata_went_back": False, "offline": ["numbers-0"]}
    monkeypatch.setattr("tiered.server.http.api.health.health_of", lambda *_: named)
    status, body, _ = get(f"{guarded.http_url}/readyz")
    assert (status, json.loads(body)["offline"]) == (200, [])


def test_users_and_bearers_of_tokens_get_in(guarded: LocalCluster) -> None:
    for login in (ALICE, ALICE, bearer(60)):
        status, body, _ = get(f"{guarded.http_url}/api/v1/topics", login)
        assert status == 200
        assert b"numbers" in body


@pytest.mark.parametrize(
    "login",
    [
        basic("alice", "hunter2"), basic("nobody", "hunter2"), basic("", ""), "Basic hunter2", "Basic !", "Basic",
        "Bearer", "Bearer hunter2", "Digest x", "", bearer(-60), f"{ALICE}x",
    ],
)  # fmt: skip
def test_a_wrong_login_is_refused_and_nothing_of_it_is_shown(guarded: LocalCluster, login: str) -> None:
    status, body, challenge = get(f"{guarded.http_url}/api/v1/topics", login)
    assert (status, challenge is not None) == (401, True)
    assert b"hunter2" not in body


def test_the_user_as_whom_brokers_log_in_is_marked(guarded: LocalCluster) -> None:
    status, body, _ = get(f"{guarded.http_url}/api/v1/users", ALICE)
    marked = {user["name"]: user["is_of_brokers"] for user in json.loads(body)["users"]}
    assert (status, marked) == (200, {"alice": False, "brokers": True})


def test_a_request_is_passed_on_under_the_name_of_the_broker(guarded: LocalCluster) -> None:
    answers = {
        get(f"{url}/api/v1/topics/numbers/records?partition={number}", ALICE)[0]
        for url in guarded.http_urls
        for number in range(4)
    }
    assert answers == {200}


def test_a_request_for_a_whole_url_is_passed_on_by_its_path(guarded: LocalCluster) -> None:
    host, port = guarded.http_url.removeprefix("http://").split(":")
    for number in range(4):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        path = f"{guarded.http_url}/api/v1/topics/numbers/records?partition={number}"
        connection.request("GET", path, headers={"Authorization": ALICE})
        assert connection.getresponse().status == 200
        connection.close()


def test_commands_log_in_with_kafkas_properties(
    guarded: LocalCluster, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(f"sasl.username=alice\nsasl.password={PASSWORDS['alice']}\n")
    told = ["segments", "numbers", "--json", "--http", guarded.http_url]
    assert main([*told, "--command-config", str(properties)]) == 0
    assert main(told) == 1
    assert "log in" in capsys.readouterr().err
