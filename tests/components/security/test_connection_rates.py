"""Addresses that open connections too fast: held unserved, and nobody else with them."""

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.support.client_quotas import alter

API_VERSIONS = 18


def test_an_address_over_its_quota_of_connections_is_held_and_closed_unserved(make_broker) -> None:  # type: ignore[no-untyped-def]
    process: BrokerProcess = make_broker(settings={"quota.window.num": 1}).start()
    with RawConnection(process) as before:
        assert alter(process, [((("ip", "127.0.0.1"),), {"connection_creation_rate": 2.0})]) == [0]
        served = refused = 0
        for _ in range(6):
            with RawConnection(process) as connection:
                try:
                    connection.call(API_VERSIONS, 0, b"")
                    served += 1
                except ConnectionError:
                    refused += 1
        assert served
        assert refused
        assert len(before.call(API_VERSIONS, 0, b"")) > 10, "what is open stays open"
    assert "opens more than connection_creation_rate" in process.log()


def test_connections_beyond_the_rate_of_all_wait_and_are_served(make_broker) -> None:  # type: ignore[no-untyped-def]
    settings = {"max.connection.creation.rate": 20, "quota.window.num": 1}
    process: BrokerProcess = make_broker(settings=settings).start()
    for _ in range(30):
        with RawConnection(process) as connection:
            assert len(connection.call(API_VERSIONS, 0, b"")) > 10
