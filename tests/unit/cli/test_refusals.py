"""Who a broker takes the command line for, as far as its own settings say, and a broker that went away."""

from collections.abc import Mapping
from typing import Never, cast

import pytest

from tiered.cli.client.refusals import principal_of
from tiered.cli.failure import CommandFailed
from tiered.cli.records.consume import RecordFetcher
from tiered.peer import Cluster, ConnectionLost, TopicPartition
from tiered.peer.security import PeerSecurity, client_security
from tiered.runtime import SystemClock


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


class StoppedCluster:
    async def fetch_many(self, positions: Mapping[TopicPartition, int], *, isolation_level: int) -> Never:
        raise ConnectionLost("127.0.0.1:1 cannot be reached")


class LateClock(SystemClock):
    """Each look is a minute after the one before."""

    _now_ms = 0.0

    def monotonic_ms(self) -> float:
        self._now_ms += 60_000
        return self._now_ms


async def test_following_a_broker_that_stopped_ends_with_what_to_do() -> None:
    fetcher = RecordFetcher(cast(Cluster, StoppedCluster()), LateClock())
    assert await fetcher.fetch({("t", 0): 0}) == []
    with pytest.raises(CommandFailed, match=r"no answer for 30 seconds: is the broker running\? Start it with"):
        await fetcher.fetch({("t", 0): 0})
