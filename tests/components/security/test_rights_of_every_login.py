"""Every API behind a login: without credentials, with wrong ones, as a user with rights and as one without."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.clients.raw import RawConnection
from tests.components.rights_table import KNOWN, ROWS, Row
from tests.components.security.rights_of_apis import ASKED, NEEDED
from tests.support.sasl_door import AUTHENTICATE, HANDSHAKE, VERSIONS, Door, alter
from tiered.rules.security.acl import Operation, PatternType, Permission, ResourceType
from tiered.testing import LocalCluster, cluster
from tiered.wire import messages
from tiered.wire.error_codes import AUTHORIZATION_FAILED

BEHIND = [row for row in ASKED if row.key not in (HANDSHAKE, VERSIONS, AUTHENTICATE)]
CREATE_ACLS, DELETE_ACLS = 30, 31


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    """Clients of the first listener are ANONYMOUS, who administers; at the other one there is alice."""
    with cluster(
        listeners={"GUARDED": "SASL_PLAINTEXT"},
        topics={KNOWN: 1},
        settings={
            "sasl.enabled.mechanisms": "PLAIN",
            "tiered.sasl.plain.without.tls": "true",
            "connection.failed.authentication.delay.ms": 1,
            "tiered.authorizer": "acl",
            "super.users": "User:ANONYMOUS",
        },
    ) as c:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        alter(c, UserScramCredentialUpsertion("alice", credential, b"secret of alice"))
        yield c


def allow(c: LocalCluster, row: Row) -> None:
    """From now on alice has the rights of this row, and no others."""
    make = messages.request(CREATE_ACLS, 3)
    rules = [
        make.AclCreation(
            resource_type=ResourceType[kind],
            resource_name="kafka-cluster" if kind == "CLUSTER" else KNOWN,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=Operation[operation],
            permission_type=Permission.ALLOW,
        )
        for operation, kind in row.rights
    ]
    with RawConnection(SimpleNamespace(kafka_port=int(c.bootstrap.rpartition(":")[2]))) as admin:
        gone = next(each for each in ROWS if each.key == DELETE_ACLS)
        admin.call(gone.key, gone.version, gone.body(KNOWN))
        admin.call(gone.key, gone.version, gone.body("kafka-cluster"))
        answer = admin.ask(CREATE_ACLS, 3, make.CreateAclsRequest(creations=rules))
        assert all(each.error_code == 0 for each in answer.results)


@pytest.mark.parametrize("row", BEHIND, ids=str)
def test_without_credentials_and_with_wrong_ones_nothing_is_answered(guarded: LocalCluster, row: Row) -> None:
    with Door(guarded) as nobody:
        nobody.send(row.key, row.version, row.body(KNOWN))
        assert nobody.is_closed()
    with Door(guarded) as impostor:
        assert impostor.login("alice", "wrong").error_code != 0
        try:
            impostor.send(row.key, row.version, row.body(KNOWN))
        except ConnectionError:
            return
        assert impostor.is_closed()


@pytest.mark.parametrize("row", NEEDED, ids=str)
def test_a_user_is_let_do_what_its_rules_say_and_nothing_else(guarded: LocalCluster, row: Row) -> None:
    with Door(guarded) as alice:
        assert alice.login().error_code == 0
        codes = row.codes(alice.call(row.key, row.version, row.body(KNOWN)))
        assert row.denied in codes
        assert set(codes) <= {0, row.denied}
        allow(guarded, row)
        assert not AUTHORIZATION_FAILED & set(row.codes(alice.call(row.key, row.version, row.body(KNOWN))))
    nothing = Row(row.key, row.version, (), 0, row.body, row.codes)
    allow(guarded, nothing)
