"""Logins by each mechanism, by real passwords and tokens, and what ends them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.sasl_door import AUDIENCE, KEY, token
from tests.unit.broker.context import SetClock
from tiered.broker.context import BrokerState
from tiered.broker.security.authentication import Authentication, Conversation, Login, check_http_logins
from tiered.broker.security.credentials import Credentials
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import InvalidConfig
from tiered.meta.security import ScramCredentialRow, Security
from tiered.rules.security.principal import USER, Principal
from tiered.rules.security.sasl import bearer, plain, scram, scram_client
from tiered.rules.security.sasl.failures import AuthenticationFailed, UnsupportedSaslMechanism
from tiered.rules.security.sasl.mechanism import MIN_ITERATIONS, Mechanism, ScramMechanism

MECHANISM = ScramMechanism.SHA_256
ALICE = Principal(USER, "alice")


def row(password: str) -> ScramCredentialRow:
    """Alice with this password."""
    salted = scram.salted_password(MECHANISM, password, b"salt", MIN_ITERATIONS)
    made = scram.credential_of(MECHANISM, salted, b"salt", MIN_ITERATIONS)
    return ScramCredentialRow(
        user_name="alice",
        mechanism=str(MECHANISM),
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


class Guard:
    """A broker's logins, whose metadata store knows Alice."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
        options = ServeOptions(
            data_dir=folder,
            meta_url="sqlite:///x",
            store_url="file:///x",
            settings=BrokerSettings.of({"sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}", **settings}),
        )
        self.clock, self.state = SetClock(), BrokerState(settings=options.settings)
        nothing: Any = None
        self.credentials = Credentials(state=self.state, changes=nothing, feed=nothing)
        self.put(row("secret"))
        self.logins = Authentication(
            options=options, clock=self.clock, state=self.state, credentials=self.credentials, is_alone=True
        )

    def put(self, *rows: ScramCredentialRow) -> None:
        self.state.security = Security(credentials=rows)


@contextmanager
def guard(folder: Path, **settings: str) -> Iterator[Guard]:
    made = Guard(folder, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        yield made
    finally:
        made.credentials.close()


async def by_scram(talk: Conversation, name: str, password: str) -> Login | None:
    asked = await talk.hear(scram_client.client_first(name, "nonce"))
    assert asked.login is None
    proof = scram_client.client_final(MECHANISM, name, password, "nonce", asked.answer)
    said = await talk.hear(proof.message)
    scram_client.check_server(proof, said.answer)
    return said.login


async def test_a_password_proves_who_one_is_and_a_wrong_one_tells_nothing_about_the_user(tmp_path: Path) -> None:
    with guard(tmp_path) as made:
        said = await made.logins.begin(Mechanism.PLAIN).hear(plain.plain_message("alice", "secret"))
        assert said.login is not None
        assert said.login.principal == ALICE
        told = set()
        for name, password in (("alice", "wrong"), ("nobody", "secret")):
            with pytest.raises(AuthenticationFailed) as of_plain:
                await made.logins.begin(Mechanism.PLAIN).hear(plain.plain_message(name, password))
            with pytest.raises(AuthenticationFailed) as of_scram:
                await by_scram(made.logins.begin(MECHANISM), name, password)
            told |= {str(of_plain.value), str(of_scram.value)}
        assert told == {scram.REFUSED}
        with pytest.raises(UnsupportedSaslMechanism):
            made.logins.begin("GSSAPI")


async def test_a_user_who_changes_between_the_messages_of_scram_is_not_let_in(tmp_path: Path) -> None:
    with guard(tmp_path) as made:
        login = await by_scram(made.logins.begin(MECHANISM), "alice", "secret")
        assert login is not None
        assert login.principal == ALICE
        talk = made.logins.begin(MECHANISM)
        asked = await talk.hear(scram_client.client_first("alice", "nonce"))
        made.put(row("another"))
        proof = scram_client.client_final(MECHANISM, "alice", "secret", "nonce", asked.answer)
        with pytest.raises(AuthenticationFailed):
            await talk.hear(proof.message)


async def test_a_login_over_http_ends_with_its_password(tmp_path: Path) -> None:
    with guard(tmp_path) as made:
        login = await made.logins.by_password("alice", "secret")
        assert await made.logins.by_password("alice", "secret") == login
        assert not made.logins.is_over(login)
        made.put(row("another"))
        assert made.logins.is_revoked(login)
        assert made.logins.is_over(login)
        with pytest.raises(AuthenticationFailed):
            await made.logins.by_password("alice", "secret")


async def test_a_token_is_a_login_until_it_ends_and_for_nobody_else(tmp_path: Path) -> None:
    taken = {"sasl_enabled_mechanisms": "OAUTHBEARER", "sasl_oauthbearer_expected_audience": AUDIENCE}
    with guard(tmp_path, **taken) as made:
        login = await made.logins.by_http_token(token(lifetime_s=300))
        assert login.principal == ALICE
        assert not made.logins.is_over(login)
        made.clock.set_by_ms = 301_000
        assert (made.logins.is_over(login), made.logins.is_revoked(login)) == (True, False)
        made.clock.set_by_ms = 0
        talk = made.logins.begin(Mechanism.OAUTHBEARER)
        for_bob = bearer.bearer_message(token()).replace(b"n,,", b"n,a=bob,")
        assert (await talk.hear(for_bob)).answer == bearer.refusal()
        with pytest.raises(AuthenticationFailed, match="token's owner"):
            await talk.hear(bearer.bearer_message(token()))  # Whatever it says now, it was refused.


async def test_over_http_tokens_are_taken_only_where_the_setting_says_so(tmp_path: Path) -> None:
    with guard(tmp_path) as made:
        with pytest.raises(AuthenticationFailed, match=r"not in sasl\.enabled\.mechanisms"):
            await made.logins.by_http_token(token())


def test_passwords_over_http_do_not_cross_the_network_in_the_clear(tmp_path: Path) -> None:
    asks = {"tiered.http.authentication": "basic"}
    options = ServeOptions(
        data_dir=tmp_path, meta_url="sqlite:///x", store_url="file:///x", settings=BrokerSettings.of(asks)
    )
    check_http_logins(replace(options, http_host="127.0.0.1"))
    with pytest.raises(InvalidConfig, match="in the clear"):
        check_http_logins(replace(options, http_host="10.0.0.1"))
    said = BrokerSettings.of({**asks, "tiered.sasl.plain.without.tls": "true"})
    check_http_logins(replace(options, http_host="10.0.0.1", settings=said))
