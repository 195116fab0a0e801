"""Where a new password may come from over HTTP: as logins, not in the clear from another machine."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tiered.errors import PolicyViolation
from tiered.server.http.api.users import create, set_password
from tiered.server.http.door.keys import BROKER


def request(peer: str, *, tls: object | None = None, allowed: bool = False) -> web.Request:
    """Its body cannot be read: whoever tries gets another error."""
    app = web.Application()
    authentication = SimpleNamespace(tiered_sasl_plain_without_tls=allowed)
    broker: Any = SimpleNamespace(
        options=SimpleNamespace(http_tls=tls), settings=SimpleNamespace(authentication=authentication)
    )
    app[BROKER] = broker
    transport = Mock(get_extra_info=lambda name, default=None: (peer, 1) if name == "peername" else default)
    return make_mocked_request("POST", "/", app=app, transport=transport)


@pytest.mark.parametrize("handler", [create, set_password])
@pytest.mark.parametrize("peer", ["10.0.0.9", "fe80::1%eth0", "::ffff:10.0.0.9"])
async def test_a_password_in_the_clear_from_another_machine_is_refused_unread(handler: Any, peer: str) -> None:
    with pytest.raises(PolicyViolation, match="would cross the network in the clear"):
        await handler(request(peer))


@pytest.mark.parametrize(
    "taken",
    [request("127.0.0.1"), request("::1"), request("::ffff:127.0.0.1"), request("10.0.0.9", tls=object()),
     request("10.0.0.9", allowed=True)],
    ids=["this machine", "by IPv6", "mapped", "TLS", "the setting"],
)  # fmt: skip
async def test_over_tls_from_this_machine_and_where_the_setting_says_so_it_is_taken(taken: web.Request) -> None:
    with pytest.raises(Exception) as caught:
        await create(taken)
    assert not isinstance(caught.value, PolicyViolation)
