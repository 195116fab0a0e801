"""The keys of tokens over https: got once, kept while their address is away, and from nowhere else."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from joserfc.jwk import ECKey

from tests.certificates import Authority
from tiered.broker.security.token_keys import MAX_BYTES, TokenKeys
from tiered.config import BrokerSettings
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.runtime import SystemClock

ONE, TWO = (ECKey.generate_key("P-256", {"kid": name}) for name in ("one", "two"))


class IssuerState:
    """What the https address answers with; None is an error."""

    def __init__(self) -> None:
        self.answer: Callable[[], web.StreamResponse] | None = None
        self.asked = 0

    def publish(self, *keys: ECKey) -> None:
        body = {"keys": [key.as_dict(private=False) for key in keys]}
        self.answer = lambda: web.json_response(body)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        del request
        self.asked += 1
        return web.Response(status=500) if self.answer is None else self.answer()


@contextlib.asynccontextmanager
async def issuer(authority: Authority) -> AsyncIterator[tuple[IssuerState, str]]:
    state = IssuerState()
    app = web.Application()
    app.router.add_get("/keys", state.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("issuer").both)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield state, f"https://127.0.0.1:{runner.addresses[0][1]}/keys"
    finally:
        await runner.cleanup()


def keys_of(url: str, ca: Path | None, *, refresh_ms: int = 1000, backoff_ms: int = 0) -> TokenKeys:
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(refresh_ms),
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": str(backoff_ms),
        "tiered.sasl.oauthbearer.jwks.ca.location": "" if ca is None else str(ca),
    }
    return TokenKeys(BrokerSettings.of(settings).authentication, SystemClock())


async def names(keys: TokenKeys, key_id: str | None = None) -> set[str | None]:
    return {key.kid for key in await keys.of(key_id)}


async def test_keys_are_got_once_for_many_and_again_for_a_name_that_is_new(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with issuer(authority) as (state, url):
        state.publish(ONE)
        keys = keys_of(url, authority.pem, refresh_ms=3_600_000)
        found = await asyncio.gather(*(names(keys, "one") for _ in range(10)))
        assert (found, state.asked) == ([{"one"}] * 10, 1)
        state.publish(ONE, TWO)
        assert await names(keys, "one") == {"one"}
        assert await names(keys, "two") == {"one", "two"}
        assert state.asked == 2


async def test_keys_stay_while_their_address_is_away_or_answers_otherwise(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with issuer(authority) as (state, url):
        state.publish(ONE)
        keys = keys_of(url, authority.pem)
        assert await names(keys) == {"one"}
        answers: list[Callable[[], web.StreamResponse] | None] = [
            None,
            lambda: web.json_response({"keys": []}),
            lambda: web.Response(body=b"[" * (MAX_BYTES + 1)),
            lambda: web.Response(status=302, headers={"Location": "/keys"}),
        ]
        for number, answer in enumerate(answers):
            state.answer = answer
            assert await names(keys, "new") == {"one"}
            assert state.asked == 2 + number, "a redirection is not followed"
    assert await names(keys, "new") == {"one"}


async def test_a_name_that_nobody_knows_asks_no_more_often_than_settings_say(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with issuer(authority) as (state, url):
        state.publish(ONE)
        keys = keys_of(url, authority.pem, backoff_ms=60_000)
        for number in range(20):
            assert await names(keys, f"unknown-{number}") == {"one"}
        assert state.asked == 1


async def test_an_address_whose_certificate_is_not_believed_gives_no_keys(tmp_path: Path) -> None:
    async with issuer(Authority(tmp_path)) as (state, url):
        state.publish(ONE)
        for ca in (None, Authority(tmp_path / "other").pem):
            with pytest.raises(AuthenticationFailed, match="keys cannot be had"):
                await keys_of(url, ca).of("one")
        assert state.asked == 0


async def test_keys_in_a_file_are_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    keys = keys_of(f"file://{path}", None)
    with pytest.raises(AuthenticationFailed):
        await keys.of("one")
    for key in (ONE, TWO):
        path.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
        assert await names(keys, key.kid) == {key.kid}
