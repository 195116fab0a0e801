"""The client's side of SASL on one connection: who we are, said before anything is asked, and again in time.

Owns the order of the messages and the moment of the next login. Must never keep a password: it is read where it stands
each time, so that a new one counts at the next login.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from tiered.config.client_security import ClientSecurity
from tiered.peer.security import LoginFailed
from tiered.rules.security.sasl import bearer, scram_client
from tiered.rules.security.sasl.failures import AuthenticationFailed
from tiered.rules.security.sasl.mechanism import Mechanism, ScramMechanism
from tiered.rules.security.sasl.plain import plain_message
from tiered.runtime import secret_bytes
from tiered.wire import messages
from tiered.wire.error_codes import ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM

HANDSHAKE, AUTHENTICATE = 17, 36
NONCE_BYTES = 24
EARLY = 0.8
"""The share of a session after which we log in again."""

Ask = Callable[[int, Callable[[messages.Messages], Any]], Awaitable[Any]]
"""Sends a request of an API and gives the answer's message."""


class LoginState:
    """The login of one connection; `due` says when it is time for it."""

    def __init__(self, security: ClientSecurity, address: str) -> None:
        self._security = security
        self._address = address
        self._due_at_s = 0.0 if security.protocol.uses_sasl else math.inf

    @property
    def is_due(self) -> bool:
        return asyncio.get_running_loop().time() >= self._due_at_s

    async def carry_out(self, ask: Ask) -> None:
        """Logs in. Raises LoginFailed, InvalidConfig for a secret that cannot be had, and what `ask` raises."""
        security = self._security
        answer = await ask(HANDSHAKE, lambda make: make.SaslHandshakeRequest(mechanism=security.sasl_mechanism))
        if answer.error_code == ILLEGAL_SASL_STATE:
            plain = "SSL" if security.protocol.uses_tls else "PLAINTEXT"
            raise LoginFailed(
                f"{self._address} wants no login: say security.protocol={plain}, or name another listener"
            )
        if answer.error_code:
            known = ", ".join(str(each)[:40] for each in list(answer.mechanisms)[:10])
            why = (
                f"it takes {known}" if answer.error_code == UNSUPPORTED_SASL_MECHANISM else f"error {answer.error_code}"
            )
            raise LoginFailed(f"{self._address} takes no login by sasl.mechanism={security.sasl_mechanism}: {why}")
        try:
            lifetime_ms = await self._by_mechanism(lambda message: self._say(ask, message))
        except AuthenticationFailed as error:
            raise LoginFailed(f"the login at {self._address} failed: {error}") from None
        self._due_at_s = math.inf
        if lifetime_ms > 0:
            self._due_at_s = asyncio.get_running_loop().time() + EARLY * lifetime_ms / 1000.0

    async def _by_mechanism(self, say: Callable[[bytes], Awaitable[tuple[bytes, int]]]) -> int:
        """How long the session is, in milliseconds; 0 is for ever."""
        security = self._security
        name = security.sasl_username
        if security.sasl_mechanism == Mechanism.OAUTHBEARER:
            assert security.sasl_token is not None
            answer, lifetime_ms = await say(bearer.bearer_message(security.sasl_token.reveal().strip()))
            if answer:
                await say(bearer.KICK)
            return lifetime_ms
        assert security.sasl_password is not None
        password = security.sasl_password.reveal()
        if security.sasl_mechanism == Mechanism.PLAIN:
            return (await say(plain_message(name, password)))[1]
        mechanism = ScramMechanism(security.sasl_mechanism)
        nonce = secret_bytes(NONCE_BYTES).hex()
        asked, _ = await say(scram_client.client_first(name, nonce))
        proof = await asyncio.to_thread(scram_client.client_final, mechanism, name, password, nonce, asked)
        answer, lifetime_ms = await say(proof.message)
        scram_client.check_server(proof, answer)
        return lifetime_ms

    async def _say(self, ask: Ask, message: bytes) -> tuple[bytes, int]:
        answer = await ask(AUTHENTICATE, lambda make: make.SaslAuthenticateRequest(auth_bytes=message))
        if answer.error_code:
            raise AuthenticationFailed(answer.error_message or f"error {answer.error_code}")
        return bytes(answer.auth_bytes), int(getattr(answer, "session_lifetime", 0) or 0)
