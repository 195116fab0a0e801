"""The users of this cluster and what is kept of their passwords.

Owns the look-up by name, made of what the metadata store says now, and the few threads that derive keys from passwords,
which takes milliseconds each. Must never keep a password, and never do less for an unknown user than for a known one.
"""

import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tiered.account import OwnersTurns, current_owner
from tiered.broker.context import BrokerState
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.meta import security
from tiered.meta.security import NOBODY, SECRET_BYTES, ScramCredentialRow
from tiered.rules.security.sasl import scram
from tiered.rules.security.sasl.mechanism import MIN_ITERATIONS, SALT_BYTES, ScramMechanism
from tiered.rules.security.sasl.scram import CredentialChange, ScramCredential
from tiered.runtime import BlockingPool, secret_bytes

THREADS = 2
MAX_WAITING = 500
"""Logins by password that wait for a thread; more are refused. One address, or user, has `THREADS` among them."""
MAX_PROVED = 1000

T = TypeVar("T")
Users = Mapping[str, Mapping[ScramMechanism, ScramCredential]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedPassword:
    """The credential that proved a login. It holds for as long as the user keeps it."""

    user_name: str
    mechanism: ScramMechanism
    credential: ScramCredential


class Credentials:
    """One broker's view of the users, as of the last change that it has applied."""

    def __init__(self, *, state: BrokerState, changes: Changes, feed: ChangeFeed) -> None:
        self._state = state
        self._changes = changes
        self._feed = feed
        self._pool = BlockingPool("password", threads=THREADS, max_waiting=MAX_WAITING)
        # Before a login an owner is an address: one that tries names by the thousand must fill the room of no other.
        self._of_owners = OwnersTurns(THREADS)
        self._rows: object = None
        self._users: Users = {}
        self._secret = self._own_secret = secret_bytes(SECRET_BYTES)
        self._usual: dict[ScramMechanism, tuple[int, int]] = {}
        """(iterations, bytes of the salt) of most users: what an imitation has as well."""
        self._usual_strongest = ScramMechanism.SHA_512
        """By which the passwords of most users are checked: for somebody unknown it takes as long."""
        self._watchers: list[Callable[[], None]] = []
        self._proved: dict[bytes, ProvedPassword] = {}
        """Digests, by a key of this process, of logins that were right a moment ago; HTTP logs in each time."""

    def close(self) -> None:
        self._pool.close(wait=False)

    def users(self) -> Users:
        """The credentials of each user, by name."""
        rows = self._state.security.credentials
        if rows is not self._rows:
            self._take(rows)
        return self._users

    def scram(self, mechanism: ScramMechanism, user_name: str) -> ScramCredential:
        """The user's credential; for an unknown user one that no client can prove."""
        found = self.users().get(user_name, {}).get(mechanism)
        iterations, salt_bytes = self._usual.get(mechanism, (MIN_ITERATIONS, SALT_BYTES))
        imitation = scram.imitation(
            mechanism, user_name, secret=self._secret, iterations=iterations, salt_bytes=salt_bytes
        )
        return found or imitation

    def holds(self, proved: ProvedPassword) -> bool:
        """Whether what a login was proved by is still kept: not once the user is deleted or has a new password."""
        return self.users().get(proved.user_name, {}).get(proved.mechanism) == proved.credential

    def watch(self, watcher: Callable[[], None]) -> None:
        """Calls it after each change of any user that this broker has applied."""
        self._watchers.append(watcher)

    def changed(self) -> None:
        """The metadata store may say something else now. Asks those who watch when it says so of users."""
        before = self._rows
        self.users()
        if before != self._rows:
            for watcher in self._watchers:
                watcher()

    async def by_password(self, user_name: str, password: str) -> ProvedPassword | None:
        """The credential of this password; None if it is not the user's. Raises Throttled when too many are asked for
        at once."""
        theirs = self.users().get(user_name)
        mechanism = self._usual_strongest if theirs is None else _strongest(theirs)
        kept = self.scram(mechanism, user_name)
        is_right = await self.in_turn(lambda: scram.is_password(mechanism, kept, password))
        proved = ProvedPassword(user_name=user_name, mechanism=mechanism, credential=kept)
        return proved if is_right and self.holds(proved) else None

    async def by_password_again(self, user_name: str, password: str) -> ProvedPassword | None:
        """As `by_password`, and at once for what was right before and still is."""
        self.users()
        login = hmac.digest(self._own_secret, f"{user_name}\x00{password}".encode(), "sha256")
        found = self._proved.get(login)
        if found is not None:
            return found
        proved = await self.by_password(user_name, password)
        if proved is not None:  # It holds by what is known now, and every change empties this.
            if len(self._proved) >= MAX_PROVED:
                del self._proved[next(iter(self._proved))]
            self._proved[login] = proved
        return proved

    async def in_turn(self, call: Callable[[], T]) -> T:
        """The result of `call`, which works on a proof for a while, in the same few threads. Raises Throttled."""
        return await self._of_owners.to_its_end(current_owner(), partial(self._pool.run, call))

    async def password_changes(
        self, user_name: str, password: str, mechanisms: Iterable[ScramMechanism], *, iterations: int
    ) -> list[CredentialChange]:
        """The changes by which the user logs in by this password, with these mechanisms. They wait for their turn.

        Raises UnacceptableCredential, Throttled when too many passwords are waited for.
        """
        scram.check_user_name(user_name)
        scram.check_new_password(password)
        scram.check_iterations(iterations)
        salts = {mechanism: secret_bytes(SALT_BYTES) for mechanism in mechanisms}

        def changes() -> list[CredentialChange]:
            return [
                CredentialChange(
                    user_name=user_name,
                    mechanism=mechanism,
                    credential=scram.new_credential(mechanism, password, salt, iterations),
                )
                for mechanism, salt in salts.items()
            ]

        return await self.in_turn(changes)

    async def alter(
        self,
        changes: Iterable[CredentialChange],
        *,
        new_users: Collection[str] = (),
        existing_users: Collection[str] = (),
    ) -> set[str]:
        """The users who lack what was to be deleted; all other changes hold here when it returns.

        Raises UserExists where one of `new_users` is there already, UserNotFound where one of `existing_users` is not,
        MetadataUnavailable.
        """
        wanted, secret = tuple(changes), secret_bytes(SECRET_BYTES)
        return await self._changes.run(
            lambda: self._feed.commit(
                lambda conn: security.alter_credentials(
                    conn, wanted, secret=secret, new_users=new_users, existing_users=existing_users
                )
            )
        )

    async def delete(self, user_name: str) -> list[ScramMechanism]:
        """The mechanisms of all passwords that the user had. None is left, whatever this broker knew of the user.

        Raises UnacceptableCredential for a name that no user can have, UserNotFound, MetadataUnavailable.
        """
        scram.check_user_name(user_name)
        mechanisms = await self._changes.run(
            lambda: self._feed.commit(lambda conn: security.delete_user(conn, user_name))
        )
        return list(map(ScramMechanism, mechanisms))

    def _take(self, rows: tuple[ScramCredentialRow, ...]) -> None:
        users: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        kinds: dict[ScramMechanism, Counter[tuple[int, int]]] = {each: Counter() for each in ScramMechanism}
        self._secret = self._own_secret
        for row in rows:
            if row.user_name == NOBODY:
                self._secret = row.salt
                continue
            mechanism = ScramMechanism(row.mechanism)
            kinds[mechanism][row.iterations, len(row.salt)] += 1
            users.setdefault(row.user_name, {})[mechanism] = ScramCredential(
                salt=row.salt, stored_key=row.stored_key, server_key=row.server_key, iterations=row.iterations
            )
        self._rows, self._users = rows, users
        self._usual = {mechanism: counts.most_common(1)[0][0] for mechanism, counts in kinds.items() if counts}
        strongest = Counter(_strongest(theirs) for theirs in users.values())
        self._usual_strongest = max(strongest, key=strongest.__getitem__, default=ScramMechanism.SHA_512)
        self._proved.clear()


def _strongest(theirs: Iterable[ScramMechanism]) -> ScramMechanism:
    """The one that a password is checked by which was sent as it is."""
    return ScramMechanism.SHA_512 if ScramMechanism.SHA_512 in theirs else ScramMechanism.SHA_256
