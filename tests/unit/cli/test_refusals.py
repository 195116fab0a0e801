"""Who a broker takes the command line for, as far as its own settings say."""

import pytest

from tiered.cli.client.refusals import principal_of
from tiered.peer.security import PeerSecurity, client_security


@pytest.mark.parametrize(
    ("given", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/x/y.pem"}, None),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "ann",
                "sasl.password": "p",
            },
            "User:ann",
        ),
    ],
)
def test_a_principal_is_that_of_the_login(given: dict[str, str], principal: str | None) -> None:
    assert principal_of(PeerSecurity(client_security(given))) == principal
