"""How far one connection is with saying who it is (KIP-43, KIP-152, KIP-368).

Owns the order in which that is done, and what may be sent before it is. Must never check a proof: the broker does.
Before a login there is room for small requests alone, few of them, and little time.
"""

import asyncio
import math
from enum import Enum
from typing import Protocol
from weakref import proxy

from tiered.broker.security.authentication import Conversation, Login
from tiered.config import BrokerSettings
from tiered.config.listeners import ListenerOptions
from tiered.rules.security.principal import Principal
from tiered.rules.security.sasl.failures import AuthenticationFailed, IllegalSaslState

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
_ALLOWED = (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE)
MAX_REQUESTS = 16
"""Of one login: the longest needs six."""
LAST_ANSWER_S = 1.0


class Phase(Enum):
    """Where a connection is."""

    NEW = "nothing was said"
    TALKING = "a mechanism was chosen, and its messages follow"
    OPEN = "everything may be asked"
    OVER = "the last answer is on its way"


class SaslConnection(Protocol):
    """A connection, as far as its login knows it."""

    host: str
    listener: ListenerOptions
    principal: Principal | None
    frame_limit: int
    """What a request may have, but for Produce."""

    @property
    def busy(self) -> bool: ...
    def complain(self, text: str, *arguments: object) -> None: ...
    def close(self) -> None: ...


class SaslSession:
    """The login of one connection. While it is not open, frames are small and soon there is an end."""

    __slots__ = (
        "_connection",
        "_conversation",
        "_frame_limit",
        "_requests_left",
        "_settings",
        "deadline_s",
        "ends_s",
        "login",
        "mechanism",
        "phase",
    )

    def __init__(self, connection: SaslConnection, settings: BrokerSettings) -> None:
        self._connection: SaslConnection = proxy(connection)  # It holds this session.
        self._frame_limit = connection.frame_limit
        """Once the client has logged in."""
        self._settings = settings
        self._conversation: Conversation | None = None
        self.phase = Phase.NEW
        self.mechanism = ""
        self.login: Login | None = None
        """The last one that succeeded."""
        self.ends_s = math.inf
        """When the login is too old, by the loop's clock."""
        self.deadline_s = math.inf
        """When it is too late to log in."""
        self._requests_left = 0
        self._close_gate()

    @property
    def principal(self) -> Principal | None:
        return self._connection.principal

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.OVER

    @property
    def left_ms(self) -> float:
        """How long the login is good for: what is asked now must not be told anything of later."""
        return max(0.0, (self.ends_s - asyncio.get_running_loop().time()) * 1000.0)

    def check(self, api_key: int) -> None:
        """Returns when the connection may send this request now. Raises IllegalSaslState: then it ends."""
        if self.phase is Phase.OPEN and (api_key in _ALLOWED or asyncio.get_running_loop().time() < self.ends_s):
            return
        if self.phase is Phase.OPEN:
            raise IllegalSaslState("its session is over: it had to log in again before its next request")
        self._requests_left -= 1
        if self.phase is Phase.OVER or api_key not in _ALLOWED or self._requests_left < 0:
            raise IllegalSaslState(f"API key {api_key} needs a login, which this connection has not")

    def begin(self, mechanism: str, conversation: Conversation) -> None:
        """A handshake has chosen the mechanism. Raises IllegalSaslState in the middle of a login."""
        if self.phase not in (Phase.NEW, Phase.OPEN):
            raise IllegalSaslState("a login is under way already")
        if self.phase is Phase.OPEN:
            if mechanism != self.mechanism:
                raise IllegalSaslState(f"whoever logs in again does so by the same mechanism: {self.mechanism}")
            self._close_gate()
        self.phase = Phase.TALKING
        self.mechanism = mechanism
        self._conversation = conversation

    @property
    def conversation(self) -> Conversation:
        """The one that is under way. Raises IllegalSaslState when there is none."""
        if self.phase is not Phase.TALKING or self._conversation is None:
            raise IllegalSaslState("a handshake must come first")
        return self._conversation

    def open(self, login: Login, *, now_ms: float) -> int:
        """Everything may be asked from now on; for so many milliseconds, where 0 is for ever.

        `now_ms` is by the wall clock, as the end of the login is. Raises AuthenticationFailed for another principal
        than before.
        """
        if self.principal is not None and self.principal != login.principal:
            raise AuthenticationFailed("whoever logs in again must be the same as before")
        lifetimes_ms = [] if login.ends_at_ms is None else [max(1.0, login.ends_at_ms - now_ms)]
        if self._settings.authentication.connections_max_reauth_ms:
            lifetimes_ms.append(self._settings.authentication.connections_max_reauth_ms)
        lifetime_ms = int(min(lifetimes_ms, default=0))
        self.ends_s = asyncio.get_running_loop().time() + lifetime_ms / 1000.0 if lifetime_ms else math.inf
        self.deadline_s = math.inf
        self.phase = Phase.OPEN
        self._conversation = None
        self.login = login
        self._connection.principal = login.principal
        self._connection.frame_limit = self._frame_limit
        return lifetime_ms

    def fail(self, why: Exception) -> None:
        """As `end`; and the log says why, unless it is full of such lines."""
        connection = self._connection
        connection.complain("a login from %s to listener %s failed: %s", connection.host, connection.listener.name, why)
        self.end()

    def revoke(self) -> None:
        """The credentials of the login are gone. The connection ends now; a request under way has a moment to be
        answered, for it may be the one that changed the user."""
        connection = self._connection
        connection.complain("connection of %s from %s closed: the user was changed", self.principal, connection.host)
        if not connection.busy:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        self.phase = Phase.OVER
        self.deadline_s = loop.time() + LAST_ANSWER_S
        loop.call_at(self.deadline_s, connection.close)

    def end(self) -> None:
        """The connection is closed once its answer is sent."""
        self.phase = Phase.OVER
        self._conversation = None
        # Should the client not take the answer, there is an end all the same.
        self.deadline_s = min(self.deadline_s, asyncio.get_running_loop().time())

    def _close_gate(self) -> None:
        self._requests_left = MAX_REQUESTS
        timeout_ms = self._settings.authentication.tiered_authentication_timeout_ms
        self.deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000.0
        self._connection.frame_limit = min(
            self._settings.authentication.sasl_server_max_receive_size, self._frame_limit
        )
