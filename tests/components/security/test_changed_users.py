"""Users that are deleted, or get another password, while they are logged in."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ScramCredentialInfo, UserScramCredentialDeletion, UserScramCredentialUpsertion
from confluent_kafka.admin import ScramMechanism as Named

from tests.support.sasl_door import FAILED, Door, alter
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.plain import plain_message
from tiered.rules.security.sasl.scram import salted_password
from tiered.rules.security.sasl.scram_client import client_final, client_first
from tiered.testing import LocalCluster, cluster
from tiered.wire import messages
from tiered.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request

FETCH, ALTER_USERS = 1, 51
BY_PASSWORD = ("PLAIN", *ScramMechanism)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    settings = {
        "sasl.enabled.mechanisms": ",".join(BY_PASSWORD),
        "tiered.sasl.plain.without.tls": "true",
        "connection.failed.authentication.delay.ms": 20,
    }
    with cluster(listeners={"GUARDED": "SASL_PLAINTEXT"}, topics={"numbers": 1}, settings=settings) as c:
        yield c


def put(c: LocalCluster, name: str, mechanism: ScramMechanism, password: bytes) -> None:
    info = ScramCredentialInfo(Named[mechanism.value.replace("-", "_")], 4096)
    alter(c, UserScramCredentialUpsertion(name, info, password))


def delete(c: LocalCluster, name: str, mechanism: ScramMechanism) -> None:
    alter(c, UserScramCredentialDeletion(name, Named[mechanism.value.replace("-", "_")]))


def login(door: Door, mechanism: str, name: str, password: str) -> Any:
    assert door.handshake(mechanism).error_code == 0
    if mechanism == "PLAIN":
        return door.say(plain_message(name, password))
    asked = door.say(client_first(name, "abc")).auth_bytes
    return door.say(client_final(ScramMechanism(mechanism), name, password, "abc", asked).message)


def wait_for_records(door: Door) -> None:
    """Sends a Fetch that waits for what does not come."""
    topics = [FetchTopic("numbers", None, [FetchPartition(0, -1, 0, -1, -1, 1)])]
    asked = FetchRequest(-1, -1, 30_000, 1, 1, isolation_level=0, session_id=0, session_epoch=-1, topics=topics)
    door.send(FETCH, 12, encode_fetch_request(asked, 12))


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
@pytest.mark.parametrize("change", ["deleted", "another password"])
def test_open_connections_of_a_user_end_when_it_is_changed(guarded: LocalCluster, mechanism: str, change: str) -> None:
    kept = ScramMechanism.SHA_512 if mechanism == "PLAIN" else ScramMechanism(mechanism)
    for name in ("carol", "dave"):
        put(guarded, name, kept, b"secret of both")
    with Door(guarded) as idle, Door(guarded) as waiting, Door(guarded) as other:
        for door, name in ((idle, "carol"), (waiting, "carol"), (other, "dave")):
            assert login(door, mechanism, name, "secret of both").error_code == 0
            assert door.cluster_id()
        wait_for_records(waiting)
        if change == "deleted":
            delete(guarded, "carol", kept)
        else:
            put(guarded, "carol", kept, b"another")
        assert idle.is_closed()
        assert waiting.is_closed(), "a wait for records must not hold it open"
        assert other.cluster_id()
        with Door(guarded) as door:
            assert login(door, mechanism, "carol", "secret of both").error_code == FAILED


def test_who_changes_its_own_password_is_answered_and_logs_in_with_the_new_one(guarded: LocalCluster) -> None:
    put(guarded, "erin", ScramMechanism.SHA_512, b"first")
    make = messages.request(ALTER_USERS, 0)
    salt = bytes(24)
    salted = salted_password(ScramMechanism.SHA_512, "second", salt, 4096)
    change = make.ScramCredentialUpsertion(name="erin", mechanism=2, iterations=4096, salt=salt, salted_password=salted)
    with Door(guarded) as door:
        assert door.login("erin", "first").error_code == 0
        asked = make.AlterUserScramCredentialsRequest(deletions=[], upsertions=[change])
        assert [each.error_code for each in door.ask(ALTER_USERS, 0, asked).results] == [0]
        assert door.is_closed()
    with Door(guarded) as door:
        assert door.login("erin", "first").error_code == FAILED
    with Door(guarded) as door:
        assert door.login("erin", "second").error_code == 0


def test_a_login_fails_whose_user_is_deleted_between_its_messages(guarded: LocalCluster) -> None:
    put(guarded, "frank", ScramMechanism.SHA_256, b"secret")
    with Door(guarded) as door:
        assert door.handshake(ScramMechanism.SHA_256).error_code == 0
        asked = door.say(client_first("frank", "abc")).auth_bytes
        delete(guarded, "frank", ScramMechanism.SHA_256)
        proof = client_final(ScramMechanism.SHA_256, "frank", "secret", "abc", asked)
        assert door.say(proof.message).error_code == FAILED


def test_a_change_of_one_mechanism_leaves_logins_by_the_other(guarded: LocalCluster) -> None:
    for mechanism in ScramMechanism:
        put(guarded, "grace", mechanism, b"secret")
    with Door(guarded) as one, Door(guarded) as two:
        assert login(one, "SCRAM-SHA-256", "grace", "secret").error_code == 0
        assert login(two, "SCRAM-SHA-512", "grace", "secret").error_code == 0
        delete(guarded, "grace", ScramMechanism.SHA_256)
        assert one.is_closed()
        assert two.cluster_id()
