"""What `Database` promises, on SQLite and on PostgreSQL: one transaction, a deadline, one kind of error."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from tests.catalogue import NOW_MS, create_topic, open_ready
from tests.contracts.topic_names import names
from tiered.account import Account, on_behalf_of
from tiered.errors import InvalidConfig, MetadataOutcomeUnknown, MetadataUnavailable, Throttled
from tiered.meta import cluster, engine, migrations, producer_ids
from tiered.meta.clock import database_now_ms
from tiered.meta.engine import Database
from tiered.server.kafka.transport.turns import Stepped

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

pytest_plugins = ["tests.meta_databases"]


async def test_what_the_function_returns_comes_back_after_its_commit(database: Database) -> None:
    row = await database.run(lambda conn: create_topic(conn, "orders"))
    assert row.name == "orders"
    assert await database.run(names) == ["orders"]


async def test_a_function_that_raises_leaves_nothing_behind(database: Database) -> None:
    def fails(conn: Connection) -> None:
        create_topic(conn, "half")
        raise ValueError("as planned")

    with pytest.raises(ValueError, match="as planned"):
        await database.run(fails)
    assert await database.run(names) == []


async def test_calls_from_many_tasks_all_happen(database: Database) -> None:
    blocks = await asyncio.gather(*(database.run(producer_ids.allocate_block) for _ in range(20)))
    ids = [producer_id for block in blocks for producer_id in block]
    assert len(ids) == len(set(ids)) == 20 * producer_ids.BLOCK_SIZE


async def test_read_sees_one_moment_while_others_write(database: Database) -> None:
    first_read, written = threading.Event(), threading.Event()

    def twice(conn: Connection) -> tuple[list[str], list[str]]:
        before = names(conn)
        first_read.set()
        if database.dialect == "postgresql":  # on SQLite the writer waits until this transaction has ended
            assert written.wait(10)
        return before, names(conn)

    async def write() -> None:
        await asyncio.to_thread(first_read.wait, 10)
        await database.run(create_topic)
        written.set()

    (before, after), _ = await asyncio.gather(database.read(twice), write())
    assert before == after == []


async def test_a_call_past_its_deadline_changes_nothing_and_the_next_one_works(database: Database) -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(conn: Connection) -> None:
        create_topic(conn, "late")
        entered.set()
        release.wait(10)

    await database.run(names)  # A first connection can take longer than the deadline on a busy machine.
    with pytest.raises(MetadataUnavailable, match="deadline") as caught:
        await database.run(slow, deadline_ms=1_000)
    assert entered.is_set()
    assert not isinstance(caught.value, MetadataOutcomeUnknown)
    release.set()
    assert await database.run(names) == []


async def test_a_long_statement_is_cut_at_the_deadline(database: Database) -> None:
    endless = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "postgresql": "SELECT pg_sleep(60)",
    }[database.dialect]
    with pytest.raises(MetadataUnavailable, match="deadline"):
        await database.run(lambda conn: conn.exec_driver_sql(endless).all(), deadline_ms=200)
    assert await database.run(names, deadline_ms=5_000) == []


async def test_a_call_that_never_got_a_thread_is_never_run_after_its_deadline(database: Database) -> None:
    release = threading.Event()
    ran = threading.Event()
    blockers = [asyncio.create_task(database.run(lambda _: release.wait(10))) for _ in range(4)]
    await asyncio.sleep(0.1)
    with pytest.raises(MetadataUnavailable, match="nothing was changed"):
        await database.run(lambda _: ran.set(), deadline_ms=100)
    release.set()
    await asyncio.gather(*blockers)
    assert await database.run(names) == []
    assert not ran.is_set()


async def test_a_cancelled_waiter_does_not_cancel_the_call(database: Database) -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(conn: Connection) -> None:
        create_topic(conn, "orders")
        entered.set()
        release.wait(10)

    task = asyncio.create_task(database.run(slow))
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    while await database.run(names) != ["orders"]:
        await asyncio.sleep(0.01)


async def test_a_commit_waits_for_one_part_of_a_list_at_the_most(database: Database) -> None:
    """However many lists are wanted: of each of them a part is read at a time, and all else goes first."""
    begun, ended = threading.Semaphore(0), threading.Event()
    order: list[str] = []

    def part(conn: Connection) -> None:
        conn.execute(text("SELECT 1"))
        order.append("part")
        begun.release()
        assert ended.wait(10)

    def commit(conn: Connection) -> None:
        conn.execute(text("SELECT 1"))
        order.append("commit")

    async with asyncio.timeout(20):
        lists = asyncio.gather(*(database.read_part(part) for _ in range(20)))
        assert await asyncio.to_thread(begun.acquire, timeout=10)
        commits = asyncio.gather(*(database.run(commit) for _ in range(3)))
        await asyncio.sleep(0.05)  # So that the first commit waits for the connection where there is one alone.
        ended.set()
        await asyncio.gather(lists, commits)
    assert order.count("part") == 20
    assert order.index("commit") == 1, order


async def test_a_call_waits_for_few_calls_of_somebody_who_makes_many(database: Database) -> None:
    """A commit waited for the look-ups of fifty connections, which all came before it in SQL's line."""
    begun, ended = threading.Semaphore(0), threading.Event()
    order: list[str] = []

    def call(name: str, conn: Connection) -> None:
        conn.execute(text("SELECT 1"))
        order.append(name)
        begun.release()
        assert ended.wait(10)

    def made_by(name: str) -> Coroutine[Any, Any, None]:
        return Stepped(database.run(partial(call, name)), step=partial(on_behalf_of, Account(name)), pause=lambda _: ())

    async with asyncio.timeout(20):
        many = asyncio.gather(*(made_by("many") for _ in range(50)))
        assert await asyncio.to_thread(begun.acquire, timeout=10)
        others = asyncio.gather(made_by("other"), database.run(partial(call, "the broker itself")))
        await asyncio.sleep(0.05)  # So that they wait for the connection where there is one alone.
        ended.set()
        await asyncio.gather(many, others)
    assert len(order) == 52
    assert order.index("the broker itself") <= 4, order
    assert order.index("other") <= 4, order


async def test_somebody_whose_calls_wait_leaves_room_for_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_WAITING_CALLS", 8)
    may_end = threading.Event()

    def made_by(name: str) -> Coroutine[Any, Any, bool]:
        return Stepped(
            database.run(lambda _: may_end.wait(10)), step=partial(on_behalf_of, Account(name)), pause=lambda _: ()
        )

    async with asyncio.timeout(20):
        many = [asyncio.ensure_future(made_by("many")) for _ in range(5)]
        await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
        other = asyncio.ensure_future(made_by("other"))
        await asyncio.sleep(0)
        may_end.set()
        assert await other
        refused = [task.exception() for task in many if await _raised(task)]
    assert [type(error) for error in refused] == [Throttled]


async def _raised(task: "asyncio.Future[Any]") -> bool:
    await asyncio.wait([task])
    return task.exception() is not None


async def test_lists_come_to_their_turn_beside_commits_without_end(database: Database) -> None:
    is_over = False

    async def write() -> None:
        while not is_over:
            await database.run(lambda conn: conn.execute(text("SELECT 1")))

    async with asyncio.timeout(20), asyncio.TaskGroup() as writers:
        for _ in range(8):
            writers.create_task(write())
        for _ in range(3):
            await database.read_part(names)
        is_over = True


async def test_a_violated_constraint_is_a_bug_and_reaches_the_caller_as_it_is(database: Database) -> None:
    with pytest.raises(IntegrityError):
        await database.run(lambda conn: conn.exec_driver_sql("INSERT INTO producer_id_block VALUES (2, 0)"))
    assert await database.run(names) == []


async def test_close_lets_a_running_call_end(database_url: str) -> None:
    database = open_ready(database_url)
    entered = threading.Event()

    def slow(conn: Connection) -> str:
        entered.set()
        time.sleep(0.2)
        return create_topic(conn, "orders").name

    task = asyncio.create_task(database.run(slow))
    await asyncio.to_thread(entered.wait, 10)
    await database.close()
    assert await task == "orders"


def test_the_databases_clock_is_near_this_machines(database: Database) -> None:
    assert abs(database.run_sync(database_now_ms) - time.time() * 1000) < 60_000


def migrate_in_a_process(url: str, gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.001)
    database = Database.open(url)
    database.migrate()
    database.run_sync(lambda conn: cluster.ensure(conn, cluster_id="either", now_ms=NOW_MS))
    database.close_sync()


def test_two_processes_can_migrate_and_found_a_cluster_at_once(database_url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=migrate_in_a_process, args=(database_url, str(gate))) for _ in range(3)]
    for worker in workers:
        worker.start()
    gate.touch()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    database = Database.open(database_url)
    assert database.run_sync(migrations.stored_revision) == migrations.REVISIONS[-1]
    assert database.run_sync(cluster.load).cluster_id == "either"
    database.close_sync()


def test_a_database_that_is_newer_than_the_code_is_refused(database: Database) -> None:
    database.run_sync(lambda conn: conn.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(InvalidConfig, match=r"9999.*newer version"):
        database.migrate()


def test_an_existing_cluster_keeps_its_id(database: Database) -> None:
    row = database.run_sync(lambda conn: cluster.ensure(conn, cluster_id="another", now_ms=NOW_MS + 1))
    assert row.cluster_id == "test-cluster"


# SQLite alone


def test_sqlite_syncs_every_commit_and_has_one_connection(tmp_path: Path) -> None:
    database = open_ready(f"sqlite:///{tmp_path / 'meta.db'}")

    def settings(conn: Connection) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        return [conn.exec_driver_sql(f"PRAGMA {pragma}").scalar_one() for pragma in pragmas]

    full = 2
    assert database.run_sync(settings) == ["wal", full, 1]
    assert database.run_sync(lambda conn: id(conn.connection.driver_connection)) == database.run_sync(
        lambda conn: id(conn.connection.driver_connection)
    )
    database.close_sync()


async def test_sqlite_locked_by_another_process_is_unavailable_not_fatal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'meta.db'}"
    open_ready(url).close_sync()
    patient = Database.open(url, deadline_ms=300)
    other = Database.open(url)
    entered, release = threading.Event(), threading.Event()

    def hold(_: Connection) -> None:
        entered.set()
        release.wait(10)

    holder = asyncio.create_task(other.run(hold))
    await asyncio.to_thread(entered.wait, 10)
    with pytest.raises(MetadataUnavailable):
        await patient.run(names)
    release.set()
    await holder
    assert await patient.run(names) == []
    await patient.close()
    await other.close()


async def test_a_missing_folder_is_unavailable_and_names_the_file(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'nowhere' / 'meta.db'}")
    with pytest.raises(MetadataUnavailable, match=r"nowhere/meta\.db"):
        await database.run(names)
    await database.close()


async def test_a_damaged_file_is_unavailable_and_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "meta.db").write_bytes(b"no database at all" * 100)
    database = Database.open(f"sqlite:///{tmp_path / 'meta.db'}")
    with pytest.raises(MetadataUnavailable, match="file is not a database"):
        await database.run(names)
    await database.close()


# URLs and secrets


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:s3cret@127.0.0.1/db",
        "postgresql://user:s3cret@127.0.0.1:not-a-port/db",
        "sqlite://",
        "sqlite:///:memory:",
        "s3cret",
        "",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Database.open(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_no_message_holds_the_password(postgres_server: "PostgresServer") -> None:
    url = f"postgresql://nobody_here:s3cret@/postgres?host={postgres_server.folder}"
    database = Database.open(url)
    with pytest.raises(MetadataUnavailable) as caught:
        await database.run(names)
    told: BaseException | None = caught.value
    while told is not None:
        assert "s3cret" not in str(told)
        told = told.__cause__ or told.__context__
    assert "s3cret" not in database.name
    await database.close()
