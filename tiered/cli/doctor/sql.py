"""The area `sql`: the metadata store, and whether its commits are what a broker takes them for.

Reads, writes what it rolls back, and commits what leaves nothing behind. Must never migrate.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from tiered.cli.doctor.disk import mount_of, nearest_existing
from tiered.cli.doctor.findings import CheckResult, Situation, fail, ok, warn
from tiered.errors import InvalidConfig, MetadataUnavailable
from tiered.meta import migrations
from tiered.meta.clock import database_now_ms
from tiered.meta.engine import Database
from tiered.runtime import SystemClock

DEADLINE_MS = 6_000
SLOW_COMMIT_MS = 50.0
CLOCK_WARN_MS = 1_000
FEW_CONNECTIONS = 8
OLDEST_POSTGRES = 130_000
_NETWORK_KINDS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "vboxsf"})
_GRANT = "Grant the user of --meta all rights on its schema."

T = TypeVar("T")


class _RolledBackError(Exception):
    """Ends a transaction whose changes must not stay."""


def sql(situation: Situation) -> Iterator[CheckResult]:
    """Whether the metadata store can be reached, read, written and trusted."""
    url = situation.options.meta_url
    if situation.options.read_only:
        yield ok("access", "a read replica (--read-only) has no metadata store")
        return
    if url.startswith("sqlite"):
        path = Path(make_url(url).database or "")
        yield from _sqlite_place(path)
        if not path.exists():
            return
    try:
        database = Database.open(url, deadline_ms=DEADLINE_MS)
    except InvalidConfig as error:
        yield fail("address", str(error), "Correct --meta URL, or install what it needs.")
        return
    try:
        yield from _examine(database)
    except InvalidConfig as error:
        yield fail("access", str(error), "Change what it says: a broker would not start.")
    except MetadataUnavailable as error:
        yield _unavailable(database, str(error))
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        yield fail("access", f"{database.name} refuses: {cause}", _GRANT)
    finally:
        database.close_sync()


def _sqlite_place(path: Path) -> Iterator[CheckResult]:
    folder = nearest_existing(path.parent)
    mount = mount_of(folder)
    if mount is not None and mount.kind in _NETWORK_KINDS:
        advice = "Put it on a local disk, or use PostgreSQL."
        yield warn("place", f"the SQLite file is on {mount.kind}, whose locks SQLite cannot rely on", advice)
    if not path.exists():
        yield ok("place", f"{path} is not there yet; the first start makes it", exists=False)


def _unavailable(database: Database, said: str) -> CheckResult:
    if "read-only" in said or "read only" in said:
        advice = "Name the primary in --meta: a standby takes no writes."
        return fail("access", f"{database.name} is read-only", advice)
    if "permission denied" in said:
        return fail("access", said, _GRANT)
    advice = "See that it runs, that --meta names it, and that its firewall and pg_hba.conf let this machine in."
    if database.dialect == "sqlite":
        advice = "See that no other program holds its lock, and that the file is Tiered's: --meta names it."
    return fail("access", said, advice)


def _examine(database: Database) -> Iterator[CheckResult]:
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    version = database.run_sync(_version)
    took_ms = clock.monotonic_ms() - began_ms
    yield ok("access", f"{database.name} answers: {version}, connected in {took_ms:.0f} ms", connect_ms=took_ms)
    yield _revision(database)
    if database.dialect == "postgresql":
        yield from database.run_sync(_settings)
    yield from _writing(database, clock)
    if database.dialect == "postgresql":
        yield _clock(database, clock)


def _version(conn: Connection) -> str:
    if conn.dialect.name == "sqlite":
        return f"SQLite {conn.execute(text('SELECT sqlite_version()')).scalar_one()}"
    return f"PostgreSQL {conn.execute(text('SHOW server_version')).scalar_one()}"


def _revision(database: Database) -> CheckResult:
    newest = migrations.REVISIONS[-1]
    stored = database.run_sync(migrations.stored_revision)
    if stored is None:
        return ok("tables", "it has no tables yet; the first start makes them", revision=None)
    if stored not in migrations.REVISIONS:
        message = f"its tables are of revision {stored}, which this version does not know; its newest is {newest}"
        advice = "Run the newer version that has migrated it, or restore an older backup."
        return fail("tables", message, advice, revision=stored)
    if stored != newest:
        message = f"its tables are of revision {stored}; the next start brings them to {newest}"
        return warn("tables", message, "Make a backup before you start this version.", revision=stored)
    return ok("tables", f"its tables are of revision {stored}, the newest", revision=stored)


def _settings(conn: Connection) -> list[CheckResult]:
    """PostgreSQL's settings that change what a commit means."""
    row = conn.execute(
        text(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
            "current_setting('full_page_writes'), pg_is_in_recovery(), current_setting('server_version_num')::int, "
            "current_setting('max_connections')::int, (SELECT count(*) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend')"
        )
    ).one()
    fsync, synchronous_commit, full_pages, in_recovery, version, most, used = row
    found: list[CheckResult] = []
    if in_recovery:
        found.append(fail("role", "it is a standby, which takes no writes", "Name the primary in --meta."))
    if fsync != "on":
        advice = "Set fsync = on in postgresql.conf: a power cut may destroy the whole database."
        found.append(fail("durability", "fsync is off", advice, fsync=fsync))
    if full_pages != "on":
        advice = "Set full_page_writes = on, unless its file system writes pages whole (ZFS)."
        found.append(warn("durability", "full_page_writes is off", advice))
    if synchronous_commit == "off":
        advice = "Set synchronous_commit = on for its database or user: what was committed may be lost at a crash."
        found.append(fail("durability", "synchronous_commit is off", advice, synchronous_commit=synchronous_commit))
    elif synchronous_commit == "local":
        advice = "Set it to on where a standby may take over: it may lack what was committed last."
        found.append(warn("durability", "synchronous_commit is local", advice, synchronous_commit=synchronous_commit))
    if version < OLDEST_POSTGRES:
        found.append(warn("version", "this PostgreSQL is older than 13", "Upgrade it: older ones are not tested."))
    if most - used < FEW_CONNECTIONS:
        advice = "Raise max_connections, or end some: each broker holds up to 4."
        found.append(warn("connections", f"{used} of {most} connections are taken", advice, used=used, most=most))
    if not any(each.check == "durability" for each in found):
        message = f"commits are flushed (fsync on, synchronous_commit {synchronous_commit})"
        found.insert(0, ok("durability", message, fsync=fsync, synchronous_commit=synchronous_commit))
    return found


def _writing(database: Database, clock: SystemClock) -> Iterator[CheckResult]:
    try:
        database.run_sync(_write_and_take_back)
    except _RolledBackError:
        pass
    began_ms = clock.monotonic_ms()
    database.run_sync(_commit_nothing)
    took_ms = clock.monotonic_ms() - began_ms
    message = f"it takes writes; a commit takes {took_ms:.1f} ms"
    if took_ms > SLOW_COMMIT_MS:
        advice = "Offset commits and segments wait for it: move it nearer, or give it a faster disk."
        yield warn("writing", message, advice, commit_ms=took_ms)
    else:
        yield ok("writing", message, commit_ms=took_ms)


def _write_and_take_back(conn: Connection) -> None:
    conn.execute(text("CREATE TABLE tiered_doctor (number integer PRIMARY KEY)"))
    conn.execute(text("INSERT INTO tiered_doctor VALUES (1)"))
    if migrations.stored_revision(conn) is not None:
        conn.execute(text("UPDATE alembic_version SET version_num = version_num"))
    raise _RolledBackError


def _commit_nothing(conn: Connection) -> None:
    """A commit that the disk must take, and after which everything is as it was."""
    if conn.dialect.name == "sqlite":
        version = conn.execute(text("PRAGMA user_version")).scalar_one()
        conn.execute(text(f"PRAGMA user_version = {int(version)}"))
    else:
        conn.execute(text("SELECT pg_logical_emit_message(true, 'tiered.doctor', '')"))


def _clock(database: Database, clock: SystemClock) -> CheckResult:
    before_ms = clock.now_ms()
    theirs_ms = database.run_sync(database_now_ms)
    ours_ms = (before_ms + clock.now_ms()) / 2
    off_ms = round(theirs_ms - ours_ms)
    message = f"its clock is {abs(off_ms)} ms {'ahead of' if off_ms >= 0 else 'behind'} this machine's"
    if abs(off_ms) > CLOCK_WARN_MS:
        return warn(
            "clock", message, "Synchronise both (chrony): times in the metadata store are its own.", off_ms=off_ms
        )
    return ok("clock", message, off_ms=off_ms)
