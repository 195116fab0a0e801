"""Where a broker logs in at the HTTP doors of others: never where its password would be heard."""

from types import SimpleNamespace
from typing import Any

import pytest

from tiered.config import BrokerSettings
from tiered.config.security import AuthenticationSettings
from tiered.server.http.door.keys import BROKER
from tiered.server.http.neighbours.forward import Neighbour, Unreachable, _own_login

LOGIN = {"Authorization": "Basic c2VjcmV0"}


def request(login: dict[str, str], *, without_tls: bool = False) -> Any:
    broker = SimpleNamespace(
        authentication=SimpleNamespace(own_http_login=lambda: login),
        settings=BrokerSettings(authentication=AuthenticationSettings(tiered_sasl_plain_without_tls=without_tls)),
    )
    return SimpleNamespace(app={BROKER: broker})


def neighbour(host: str, *, is_secure: bool = False) -> Neighbour:
    return Neighbour(broker_id=2, http_host=host, http_port=8080, is_secure=is_secure)


def test_a_password_does_not_cross_the_network_in_the_clear() -> None:
    with pytest.raises(Unreachable, match="https") as refused:
        _own_login(request(LOGIN), neighbour("10.0.0.2"))
    assert "c2VjcmV0" not in str(refused.value)


def test_a_broker_logs_in_over_https_on_its_own_machine_and_where_it_was_told_to() -> None:
    assert _own_login(request(LOGIN), neighbour("10.0.0.2", is_secure=True)) == LOGIN
    assert _own_login(request(LOGIN), neighbour("127.0.0.1")) == LOGIN
    assert _own_login(request(LOGIN, without_tls=True), neighbour("10.0.0.2")) == LOGIN
    assert _own_login(request({}), neighbour("10.0.0.2")) == {}
