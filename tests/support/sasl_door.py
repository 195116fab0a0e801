"""A connection that logs in by hand."""

import time
from types import SimpleNamespace
from typing import Any

from confluent_kafka.admin import AdminClient
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.clients.raw import RawConnection
from tiered.rules.security.sasl.plain import plain_message
from tiered.testing import LocalCluster
from tiered.wire import messages

KEY = ECKey.generate_key("P-256", {"kid": "one"})
AUDIENCE = "tiered-tests"
HANDSHAKE, VERSIONS, AUTHENTICATE = 17, 18, 36
UNSUPPORTED, ILLEGAL, UNSUPPORTED_VERSION, FAILED = 33, 34, 35, 58


def token(name: str = "alice", *, lifetime_s: float = 300, audience: str = AUDIENCE) -> str:
    now = time.time()
    claims = {"sub": name, "aud": audience, "iat": int(now), "exp": now + lifetime_s}
    return jwt.encode({"alg": "ES256", "kid": "one"}, claims, KEY)


def alter(c: LocalCluster, *changes: Any) -> None:
    admin = AdminClient({"bootstrap.servers": c.bootstrap, "log_level": 0})
    for answer in admin.alter_user_scram_credentials(list(changes)).values():
        answer.result(10)


class Door(RawConnection):
    """A connection to a listener that asks who one is."""

    def __init__(self, c: LocalCluster, listener: str = "GUARDED") -> None:
        port = c.bootstrap_at(listener).rpartition(":")[2]
        super().__init__(SimpleNamespace(kafka_port=int(port)), timeout_s=10)

    def handshake(self, mechanism: str) -> Any:
        make = messages.request(HANDSHAKE, 1)
        return self.ask(HANDSHAKE, 1, make.SaslHandshakeRequest(mechanism=mechanism))

    def say(self, message: bytes) -> Any:
        make = messages.request(AUTHENTICATE, 2)
        return self.ask(AUTHENTICATE, 2, make.SaslAuthenticateRequest(auth_bytes=message))

    def login(self, name: str = "alice", password: str = "secret of alice") -> Any:
        assert self.handshake("PLAIN").error_code == 0
        return self.say(plain_message(name, password))

    def versions(self) -> bytes:
        return self.call(VERSIONS, 0, b"")

    def cluster_id(self) -> str:
        make = messages.request(60, 0)
        return str(self.ask(60, 0, make.DescribeClusterRequest(include_cluster_authorized_operations=False)).cluster_id)

    def is_closed(self) -> bool:
        try:
            self.receive_frame()
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return False
