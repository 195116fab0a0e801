"""Who a client is by its certificate: access control lists know it by Kafka's protocol and over HTTP alike."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.certificates import Authority, Shown
from tiered.config.client_security import client_security
from tiered.peer import Cluster
from tiered.peer.security import PeerSecurity
from tiered.peer.topic_admin import create_topics
from tiered.server.http.door.rights import ON_BEHALF_OF
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.certificates"]

TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[LocalCluster]:
    settings = {
        "ssl.keystore.location": authority.sign("broker").both,
        "ssl.truststore.location": authority.pem,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Example$/$1/",
        "tiered.authorizer": "acl",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with cluster(listeners={"MUTUAL": "SSL"}, https=True, settings=settings) as c:
        yield c


@pytest.fixture(scope="module")
def among_brokers(authority: Authority) -> Iterator[LocalCluster]:
    """Brokers show certificates to each other, and stand in no list of super users."""
    settings = {
        "ssl.keystore.location": authority.sign("broker").both,
        "ssl.truststore.location": authority.pem,
        "ssl.client.auth": "required",
        "tiered.authorizer": "acl",
        "tiered.broker.principals": "User:CN=b*,O=Example",
        "super.users": "User:CN=admin,O=Example",
    }
    with cluster(listeners={"MUTUAL": "SSL"}, inter_broker_listener="MUTUAL", https=True, settings=settings) as c:
        yield c


def status(c: LocalCluster, authority: Authority, name: str, path: str, **headers: str) -> int:
    """Of a GET by the owner of this certificate."""
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(authority.sign(name).both)
    request = urllib.request.Request(c.http_url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def security(authority: Authority, shown: Shown) -> PeerSecurity:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(authority.pem),
        "ssl.keystore.location": str(shown.both),
    }
    return PeerSecurity(client_security(given))


async def created(c: LocalCluster, authority: Authority, name: str, topic: str) -> int:
    """The error code for the creation of a topic."""
    async with Cluster(c.bootstrap_at("MUTUAL"), security=security(authority, authority.sign(name))) as client:
        (result,) = await create_topics(client, [topic], configs={})
        return int(result.error_code)


async def test_one_may_and_another_may_not(guarded: LocalCluster, authority: Authority) -> None:
    assert await created(guarded, authority, "admin", "made") == 0
    assert await created(guarded, authority, "mallory", "not-made") == TOPIC_AUTHORIZATION_FAILED


def test_the_same_over_http(guarded: LocalCluster, authority: Authority) -> None:
    found = {}
    for name in ("admin", "mallory"):
        context = ssl.create_default_context(cafile=str(authority.pem))
        context.load_cert_chain(authority.sign(name).both)
        url = f"{guarded.http_url}/api/v1/cluster"
        try:
            with urllib.request.urlopen(url, timeout=30, context=context) as answer:
                found[name] = (answer.status, len(json.load(answer)["brokers"]))
        except urllib.error.HTTPError as error:
            found[name] = (error.code, 0)
    assert found == {"admin": (200, 1), "mallory": (403, 0)}


def test_a_broker_that_is_no_super_user_reads_the_metrics(among_brokers: LocalCluster, authority: Authority) -> None:
    found = {name: status(among_brokers, authority, name, "/metrics") for name in ("admin", "broker", "mallory")}
    assert found == {"admin": 200, "broker": 200, "mallory": 403}
    assert status(among_brokers, authority, "broker", "/api/v1/topics/secret") == 403
    spoken_for = {"X-Tiered-Forwarded-By": "2", ON_BEHALF_OF: f"{quote('User:CN=mallory,O=Example', safe='')} 10.0.0.1"}
    assert status(among_brokers, authority, "broker", "/metrics", **spoken_for) == 403
