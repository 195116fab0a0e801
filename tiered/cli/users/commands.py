"""`tiered users list|create|set-password|delete`: who may log in by a password.

Owns these commands' words, and the two ways: over the Kafka protocol, or with --meta into the metadata store itself,
where the first user must come from when brokers let in nobody who has not logged in. A password is read from a
terminal, a file or standard input, and is shown and kept nowhere.
"""

import argparse
import getpass
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tiered.cli.client.cluster import run_with_cluster
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.names import nearest_names
from tiered.cli.output import Cell, print_json, print_table, say
from tiered.errors import TieredError
from tiered.meta import cluster as cluster_row
from tiered.meta import security
from tiered.meta.engine import Database
from tiered.peer import Cluster
from tiered.peer.access_admin import NewPassword, Users, alter_user, describe_users
from tiered.rules.security.sasl.mechanism import (
    MAX_ITERATIONS,
    MAX_PASSWORD_BYTES,
    MAX_USER_NAME,
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramMechanism,
)
from tiered.rules.security.sasl.scram import CredentialChange, credential_of, salted_password
from tiered.runtime import SystemClock, new_uuid, secret_bytes

Change = tuple[Sequence[NewPassword], Sequence[ScramMechanism]]
"""New passwords of a user, and the mechanisms whose passwords go."""


def run_list(arguments: argparse.Namespace) -> None:
    """`users list`."""

    async def act(cluster: Cluster) -> None:
        _show(arguments, await describe_users(cluster))

    if arguments.meta is None:
        run_with_cluster(arguments, act)
    else:
        with _catalogue(arguments.meta) as database:
            _show(arguments, _stored(database))


def run_create(arguments: argparse.Namespace) -> None:
    """`users create`."""
    new_password = _new_password(arguments)

    def change(users: Users) -> Change:
        if arguments.user in users:
            raise CommandFailed(
                f"user {arguments.user} exists already: nothing was changed. "
                f"`tiered users set-password {shlex.quote(arguments.user)}` gives a new password"
            )
        return new_password(_chosen(arguments) or [ScramMechanism.SHA_512]), ()

    if arguments.meta is not None:
        _make_folder(arguments.meta)
    _alter(arguments, change, "created, and can log in")


def run_set_password(arguments: argparse.Namespace) -> None:
    """`users set-password`."""
    new_password = _new_password(arguments)

    def change(users: Users) -> Change:
        # A password that counted for one mechanism alone would leave the old one good for the other.
        mechanisms = _existing(arguments, users)
        return new_password(_chosen(arguments) or mechanisms), ()

    _alter(arguments, change, "has this password now")


def _new_password(arguments: argparse.Namespace) -> Callable[[Sequence[ScramMechanism]], list[NewPassword]]:
    """The password that was typed, for the mechanisms that it gets. Raises UsageError."""
    if not MIN_ITERATIONS <= arguments.iterations <= MAX_ITERATIONS:
        raise UsageError(f"--iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    if not 0 < len(arguments.user) <= MAX_USER_NAME:
        raise UsageError(f"a user's name has 1 to {MAX_USER_NAME} characters")
    password = _password(arguments)
    return lambda mechanisms: [_new(mechanism, password, arguments.iterations) for mechanism in mechanisms]


def run_delete(arguments: argparse.Namespace) -> None:
    """`users delete`."""

    def change(users: Users) -> Change:
        mechanisms = _existing(arguments, users)
        return (), _chosen(arguments) or mechanisms

    _alter(arguments, change, "cannot log in any more")


def _show(arguments: argparse.Namespace, users: Users) -> None:
    if arguments.json:
        print_json(
            [
                {"user": name, "mechanisms": {str(how): count for how, count in theirs.items()}}
                for name, theirs in sorted(users.items())
            ]
        )
    elif users:
        rows: list[list[Cell]] = [[name, how, users[name][how]] for name in sorted(users) for how in users[name]]
        print_table("USER MECHANISM >ITERATIONS", rows)
    else:
        say("no users; `tiered users create NAME` makes one")


def _alter(arguments: argparse.Namespace, change: Callable[[Users], Change], done: str) -> None:
    """Makes the change that is due for the users that there are, in one of the two ways."""

    async def act(cluster: Cluster) -> None:
        new, deleted = change(await describe_users(cluster))
        await alter_user(cluster, arguments.user, new=new, deleted=deleted)

    if arguments.meta is None:
        run_with_cluster(arguments, act)
    else:
        with _catalogue(arguments.meta) as database:
            _store(database, arguments.user, *change(_stored(database)))
    if arguments.json:
        print_json({"user": arguments.user})
    else:
        how = f" by {', '.join(dict.fromkeys(arguments.mechanism))}" if arguments.mechanism else ""
        say(f"user {arguments.user} {done}{how}")


def _existing(arguments: argparse.Namespace, users: Users) -> Sequence[ScramMechanism]:
    """The mechanisms that the user has a password for. Raises CommandFailed when there is no such user."""
    if arguments.user not in users:
        similar = nearest_names(arguments.user, users)
        raise CommandFailed(
            f"there is no user {arguments.user}{similar}; `tiered users list` shows those that there are"
        )
    return list(users[arguments.user])


def _chosen(arguments: argparse.Namespace) -> Sequence[ScramMechanism]:
    """The mechanisms that were named on the command line, which may be none."""
    return [ScramMechanism(name) for name in dict.fromkeys(arguments.mechanism or ())]


def _new(mechanism: ScramMechanism, password: str, iterations: int) -> NewPassword:
    salt = secret_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return NewPassword(mechanism=mechanism, salt=salt, salted_password=salted, iterations=iterations)


def _password(arguments: argparse.Namespace) -> str:
    try:
        if arguments.password_file is not None:
            with Path(arguments.password_file).expanduser().open("rb") as file:
                line = file.readline(MAX_PASSWORD_BYTES + 2)
        elif sys.stdin.isatty():
            typed = getpass.getpass(f"password of {arguments.user}: ")
            if getpass.getpass("the same again: ") != typed:
                raise UsageError("the two passwords differ")
            line = typed.encode()
        else:
            line = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES + 2)
        password = line.decode().rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"cannot read --password-file {arguments.password_file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UsageError("the password is no UTF-8") from None
    if not password or len(password.encode()) > MAX_PASSWORD_BYTES:
        raise UsageError(f"the password has 1 to {MAX_PASSWORD_BYTES} bytes, in the first line")
    return password


@contextmanager
def _catalogue(url: str) -> Iterator[Database]:
    try:
        database = Database.open(url)
        try:
            database.migrate()
            yield database
        finally:
            database.close_sync()
    except TieredError as error:
        raise CommandFailed(str(error)) from error


def _make_folder(meta_url: str) -> None:
    """The first user is often there before the broker's data folder."""
    scheme, _, path = meta_url.partition(":///")
    if scheme.startswith("sqlite") and path:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"cannot make the folder {Path(path).parent}: {error.strerror}") from error


def _stored(database: Database) -> Users:
    found: dict[str, dict[ScramMechanism, int]] = {}
    for row in database.run_sync(security.load_all).credentials:
        if row.user_name != security.NOBODY:
            found.setdefault(row.user_name, {})[ScramMechanism(row.mechanism)] = row.iterations
    return found


def _store(database: Database, name: str, new: Sequence[NewPassword], deleted: Sequence[ScramMechanism]) -> None:
    changes = [CredentialChange(user_name=name, mechanism=each, credential=None) for each in deleted]
    for each in new:
        kept = credential_of(each.mechanism, each.salted_password, each.salt, each.iterations)
        changes.append(CredentialChange(user_name=name, mechanism=each.mechanism, credential=kept))
    cluster_id, now_ms = str(new_uuid()), SystemClock().now_ms()
    secret = secret_bytes(security.SECRET_BYTES)
    # As a first broker does: there may have been none yet.
    database.run_sync(lambda conn: cluster_row.ensure(conn, cluster_id=cluster_id, now_ms=now_ms))
    if database.run_sync(lambda conn: security.alter_credentials(conn, changes, secret=secret)):
        raise CommandFailed(f"user {name} has no such credential")
