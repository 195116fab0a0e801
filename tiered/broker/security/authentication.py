"""Authentication of clients: by a name and a password, or by a token.

Owns the exchange of each mechanism as far as it needs users, keys and the time; `rules.security.sasl` checks proofs.
Must never speak to a client: the doors do.
"""

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tiered.broker.context import BrokerState
from tiered.broker.security.credentials import Credentials, ProvedPassword
from tiered.broker.security.token_keys import TokenKeys
from tiered.config import BrokerSettings, ServeOptions
from tiered.config.listeners import is_loopback
from tiered.config.security import AuthenticationSettings
from tiered.errors import InvalidConfig
from tiered.metrics import CountersState
from tiered.rules.security.authorization import parse_super_users
from tiered.rules.security.broker_principals import BrokerPrincipals
from tiered.rules.security.principal import USER, Principal
from tiered.rules.security.sasl import bearer, plain, scram, token
from tiered.rules.security.sasl.failures import AuthenticationFailed, UnsupportedSaslMechanism
from tiered.rules.security.sasl.mechanism import Mechanism, ScramMechanism
from tiered.runtime import Clock, secret_bytes

NONCE_BYTES = 24
InTurn = Callable[[Callable[[], token.TokenOwner]], Awaitable[token.TokenOwner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The principal; `ends_at_ms` is when the proof ends, by the wall clock, and None when it does not. `proved_by` is
    the password's part of it, which ends with a change of the user."""

    principal: Principal
    ends_at_ms: float | None = None
    proved_by: ProvedPassword | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The answer to a client's message; `login` once it has proved who it is."""

    answer: bytes = b""
    login: Login | None = None


class Conversation(ABC):
    """One attempt to log in."""

    @abstractmethod
    async def hear(self, message: bytes) -> Said:
        """The answer to the client's next message. Raises AuthenticationFailed, and Throttled."""


class Logins(Protocol):
    """The ways to log in at one door: a broker's, or a read replica's."""

    def begin(self, mechanism: str) -> Conversation:
        """A login by this mechanism, which the listener takes. Raises UnsupportedSaslMechanism."""

    async def by_password(self, user_name: str, password: str) -> Login:
        """For logins that come with every request. Raises AuthenticationFailed, Throttled."""

    async def by_http_token(self, text: str) -> Login:
        """The principal of a token that came over HTTP. Raises AuthenticationFailed, Throttled."""


class Guarded(Protocol):
    """A process with doors that ask for logins: a broker, or a read replica."""

    clock: Clock
    counters: CountersState

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def authentication(self) -> Logins: ...


class Authentication:
    """The ways to log in to one broker."""

    def __init__(
        self, *, options: ServeOptions, clock: Clock, state: BrokerState, credentials: Credentials, is_alone: bool
    ) -> None:
        """Raises InvalidConfig for principals that are none."""
        settings = state.settings
        self._clock = clock
        self._state = state
        self._credentials = credentials
        self._tokens = TokenLogins(settings.authentication, clock, credentials.in_turn)
        among_brokers = options.inter_broker
        name = settings.authentication.tiered_sasl_inter_broker_username
        own = f"{USER}:{name}" if name else ""
        check_http_logins(options)
        self.tells_brokers = among_brokers.authenticates
        """Brokers prove to each other who they are."""
        others = frozenset((*parse_super_users(settings.authorization.super_users), *((own,) if own else ())))
        self._brokers = BrokerPrincipals.parse(settings.authentication.tiered_broker_principals, others=others)
        if self.tells_brokers and not self._brokers and not is_alone:
            raise InvalidConfig(
                f"brokers show certificates to each other on the listener {among_brokers.name}: say whose are brokers' "
                'with tiered.broker.principals, such as "User:CN=broker-*.example.com"'
            )

    def begin(self, mechanism: str) -> Conversation:
        """A login by this mechanism, which the listener takes."""
        match mechanism:
            case Mechanism.PLAIN:
                return _Plain(self._credentials)
            case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
                return _Scram(self._credentials, ScramMechanism(mechanism))
            case Mechanism.OAUTHBEARER:
                return self._tokens.begin(mechanism)
            case _:
                raise UnsupportedSaslMechanism(f"{mechanism[:40]} is not served")

    def is_broker(self, principal: Principal | None) -> bool:
        """Whether requests that only brokers make are its to make. Where brokers prove nothing to each other, nobody
        can tell, and everybody who is let in is believed."""
        if principal is None:
            return False
        return not self.tells_brokers or str(principal) in self._brokers

    def own_http_login(self) -> dict[str, str]:
        """The header by which this broker logs in at the HTTP doors of others; none where those ask for no login, or
        where a certificate says who it is. Raises InvalidConfig for a password that cannot be had."""
        settings = self._state.settings
        password = settings.authentication.inter_broker_password()
        if settings.authentication.tiered_http_authentication == "none" or password is None:
            return {}
        login = f"{settings.authentication.tiered_sasl_inter_broker_username}:{password.reveal()}"
        return {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}

    async def by_password(self, user_name: str, password: str) -> Login:
        """For logins that come with every request. Raises AuthenticationFailed, Throttled."""
        login = plain.read_plain(plain.plain_message(user_name, password))
        return _login(await self._credentials.by_password_again(login.user_name, login.password))

    def is_revoked(self, login: Login) -> bool:
        """Whether its user has another password now, or none, or is gone."""
        return login.proved_by is not None and not self._credentials.holds(login.proved_by)

    def is_over(self, login: Login) -> bool:
        """Whether it is revoked, or its token has ended."""
        has_ended = login.ends_at_ms is not None and login.ends_at_ms <= self._clock.now_ms()
        return has_ended or self.is_revoked(login)

    async def by_http_token(self, text: str) -> Login:
        """The principal of a token that came over HTTP. Raises AuthenticationFailed, Throttled."""
        return await self._tokens.by_http_token(text)


class TokenLogins:
    """The one way to log in that needs no users: brokers have it, and read replicas have nothing else."""

    def __init__(self, settings: AuthenticationSettings, clock: Clock, in_turn: InTurn) -> None:
        """`in_turn` gives what a call gives that checks a proof, in a thread of a few; it may raise Throttled."""
        self._clock = clock
        self._in_turn = in_turn
        self._keys = TokenKeys(settings, clock)
        self._policy = token.TokenPolicy(
            audiences=settings.sasl_oauthbearer_expected_audience,
            issuer=settings.sasl_oauthbearer_expected_issuer or None,
            scopes=settings.tiered_sasl_oauthbearer_required_scopes,
            subject_claim=settings.sasl_oauthbearer_sub_claim_name,
            scope_claim=settings.sasl_oauthbearer_scope_claim_name,
            clock_skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
        )
        self._http_takes_tokens = Mechanism.OAUTHBEARER in settings.sasl_enabled_mechanisms

    def begin(self, mechanism: str) -> Conversation:
        """A login by this mechanism, which the listener takes."""
        if mechanism != Mechanism.OAUTHBEARER:
            raise UnsupportedSaslMechanism(f"{mechanism[:40]} is not served")
        return _Bearer(self)

    async def by_password(self, user_name: str, password: str) -> Login:
        """Raises AuthenticationFailed: there is nobody who has one."""
        del user_name, password
        raise AuthenticationFailed("nobody has a password here: log in with a token (bearer)")

    async def by_http_token(self, text: str) -> Login:
        """The principal of a token that came over HTTP. Raises AuthenticationFailed, Throttled."""
        if not self._http_takes_tokens:
            raise AuthenticationFailed("tokens are not taken here: OAUTHBEARER is not in sasl.enabled.mechanisms")
        return await self.by_token(text)

    async def by_token(self, text: str) -> Login:
        """The principal of a token. Raises AuthenticationFailed, Throttled."""
        keys = await self._keys.of(token.key_id(text))
        now_s = self._clock.now_ms() / 1000.0
        owner = await self._in_turn(lambda: token.token_owner(text, keys, self._policy, now_s=now_s))
        return Login(principal=Principal(USER, owner.name), ends_at_ms=owner.expires_at_s * 1000.0)


def check_http_logins(options: ServeOptions) -> None:
    """Returns when nothing secret of a login over HTTP crosses the network in the clear. Raises InvalidConfig."""
    settings, host = options.settings.authentication, options.http_host
    needs_tls = settings.tiered_http_authentication != "none"
    if needs_tls and not (options.http_tls or is_loopback(host) or settings.tiered_sasl_plain_without_tls):
        raise InvalidConfig(
            f"tiered.http.authentication=basic would have passwords cross the network in the clear: give --http "
            f"https://{host}:{options.http_port}, or say tiered.sasl.plain.without.tls=true"
        )


class _Plain(Conversation):
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def hear(self, message: bytes) -> Said:
        login = plain.read_plain(message)
        return Said(login=_login(await self._credentials.by_password(login.user_name, login.password)))


class _Scram(Conversation):
    def __init__(self, credentials: Credentials, mechanism: ScramMechanism) -> None:
        self._credentials = credentials
        self._mechanism = mechanism
        self._asked: scram.Challenge | None = None

    async def hear(self, message: bytes) -> Said:
        if self._asked is None:
            first = scram.read_client_first(message)
            kept = self._credentials.scram(self._mechanism, first.user_name)
            self._asked = scram.challenge(self._mechanism, first, kept, secret_bytes(NONCE_BYTES).hex())
            return Said(answer=self._asked.message.encode())
        asked, credentials = self._asked, self._credentials
        answer = scram.server_final(asked, message)
        proved = ProvedPassword(
            user_name=asked.client_first.user_name, mechanism=self._mechanism, credential=asked.credential
        )
        # The user may have been changed between the two messages.
        return Said(answer=answer, login=_login(proved if credentials.holds(proved) else None))


class _Bearer(Conversation):
    def __init__(self, tokens: TokenLogins) -> None:
        self._tokens = tokens
        self._refused: AuthenticationFailed | None = None

    async def hear(self, message: bytes) -> Said:
        if self._refused is not None:
            raise self._refused  # RFC 7628: the client has said that it has read the refusal.
        login = bearer.read_bearer(message)
        try:
            found = await self._tokens.by_token(login.token)
            if login.authorization_id not in ("", found.principal.name):
                raise AuthenticationFailed("the authorization id is not the token's owner: leave it empty")
        except AuthenticationFailed as error:
            self._refused = error
            return Said(answer=bearer.refusal())
        return Said(login=found)


def _login(proved: ProvedPassword | None) -> Login:
    """Raises AuthenticationFailed when nothing was proved."""
    if proved is None:
        raise AuthenticationFailed(scram.REFUSED)
    return Login(principal=Principal(USER, proved.user_name), proved_by=proved)
