"""What `Database` promises while PostgreSQL is away, hangs, refuses or breaks off."""

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url

from tests.catalogue import create_topic, open_ready
from tests.contracts.topic_names import names
from tiered.errors import InvalidConfig, MetadataOutcomeUnknown, MetadataUnavailable
from tiered.meta.engine import Database

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

pytest_plugins = ["tests.meta_databases"]


async def test_a_user_without_rights_gets_what_the_server_says_and_no_bug(postgres_url: str) -> None:
    owner = Database.open(postgres_url)
    await owner.run(lambda conn: conn.execute(text("CREATE ROLE engine_guest LOGIN")))
    guest_url = make_url(postgres_url).set(username="engine_guest").render_as_string(hide_password=False)
    guest = Database.open(guest_url)
    try:
        with pytest.raises(MetadataUnavailable, match="permission denied for schema public"):
            await guest.run(lambda conn: conn.execute(text("CREATE TABLE public.guests (id int)")))
    finally:
        await guest.close()
        await owner.run(lambda conn: conn.execute(text("DROP ROLE engine_guest")))
        await owner.close()


async def test_a_wrong_password_is_said_with_where_passwords_stand(postgres_server: "PostgresServer") -> None:
    owner = create_engine(make_url(postgres_server.url()).set(drivername="postgresql+psycopg"))
    rules = postgres_server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all engine_clerk scram-sha-256\n{before}")
    try:
        with owner.begin() as conn:
            conn.execute(text("CREATE ROLE engine_clerk LOGIN PASSWORD 'right'"))
            conn.execute(text("SELECT pg_reload_conf()"))
        url = make_url(postgres_server.url()).set(username="engine_clerk")
        for password in ("wrong", None):
            clerk = Database.open(url.set(password=password).render_as_string(hide_password=False))
            with pytest.raises(MetadataUnavailable, match=r"refuses the login .*PGPASSWORD.*passfile=") as refused:
                await clerk.run(lambda conn: conn.execute(text("SELECT 1")))
            assert "try again later" not in str(refused.value)
            await clerk.close()
    finally:
        rules.write_text(before)
        with owner.begin() as conn:
            conn.execute(text("DROP ROLE engine_clerk"))
            conn.execute(text("SELECT pg_reload_conf()"))
        owner.dispose()


async def test_a_database_that_is_not_utf8_is_refused_by_name(postgres_url: str) -> None:
    url = make_url(postgres_url)
    create = "CREATE DATABASE engine_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    server = create_engine(url, isolation_level="AUTOCOMMIT")
    with server.connect() as conn:
        conn.execute(text(create))
    ascii_url = url.set(database="engine_ascii").render_as_string(hide_password=False)
    database = Database.open(ascii_url)
    try:
        with pytest.raises(InvalidConfig, match=r"the database's encoding is SQL_ASCII.*ENCODING 'UTF8'"):
            await database.run(lambda conn: conn.execute(text("SELECT 1")))
    finally:
        await database.close()
        with server.connect() as conn:
            conn.execute(text("DROP DATABASE engine_ascii"))
        server.dispose()


async def test_postgres_stopped_is_unavailable_and_heals_when_it_is_back(postgres_server: "PostgresServer") -> None:
    admin = Database.open(postgres_server.url())
    database = Database.open(postgres_server.url(), deadline_ms=5_000)
    one = text("SELECT 1")

    async def ask() -> object:
        return await database.run(lambda conn: conn.execute(one).scalar_one())

    assert await asyncio.gather(*(ask() for _ in range(4))) == [1, 1, 1, 1]
    postgres_server.stop()
    try:
        for _ in range(3):
            with pytest.raises(MetadataUnavailable, match="try again"):
                await ask()
    finally:
        postgres_server.start()
    assert await asyncio.gather(*(ask() for _ in range(8))) == [1] * 8
    await database.close()
    await admin.close()


async def test_connections_that_broke_while_idle_cost_no_caller_an_error(postgres_url: str) -> None:
    database = open_ready(postgres_url)
    await asyncio.gather(*(database.run(names) for _ in range(4)))
    other = Database.open(postgres_url)
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await other.run(lambda conn: conn.exec_driver_sql(others).all())
    assert await asyncio.gather(*(database.run(names) for _ in range(8))) == [[]] * 8
    await database.close()
    await other.close()


async def test_a_frozen_backend_costs_one_deadline_and_its_connection(
    postgres_url: str, postgres_server: "PostgresServer"
) -> None:
    database = open_ready(postgres_url)
    backend = text("SELECT pg_backend_pid()")
    frozen: list[int] = []

    def freeze_then_ask(conn: Connection) -> None:
        frozen.append(conn.execute(backend).scalar_one())
        postgres_server.freeze(frozen[0])
        conn.execute(backend)

    try:
        with pytest.raises(MetadataUnavailable, match="deadline"):
            await database.run(freeze_then_ask, deadline_ms=300)
        assert await database.run(names) == []
        pid = await database.run(lambda conn: conn.execute(backend).scalar_one())
        assert pid != frozen[0]
    finally:
        postgres_server.thaw(frozen[0])
    await database.close()


async def test_a_commit_without_an_answer_is_reported_as_unknown(
    postgres_url: str, postgres_server: "PostgresServer"
) -> None:
    database = open_ready(postgres_url)
    frozen: list[int] = []

    def freeze_before_commit(conn: Connection) -> None:
        create_topic(conn, "perhaps")
        frozen.append(conn.execute(text("SELECT pg_backend_pid()")).scalar_one())
        postgres_server.freeze(frozen[0])

    try:
        with pytest.raises(MetadataOutcomeUnknown, match="may or may not"):
            await database.run(freeze_before_commit, deadline_ms=300)
    finally:
        postgres_server.thaw(frozen[0])
    # The server read the COMMIT when it woke: a wait that was given up can look like a commit.
    while await database.run(names) != ["perhaps"]:
        await asyncio.sleep(0.01)
    await database.close()


async def test_a_deadlock_is_repeated_until_both_have_happened(postgres_url: str) -> None:
    database = open_ready(postgres_url)
    await database.run(lambda conn: conn.exec_driver_sql("CREATE TABLE t (id int PRIMARY KEY, n int)").close())
    await database.run(lambda conn: conn.exec_driver_sql("INSERT INTO t VALUES (1, 0), (2, 0)").close())
    both = threading.Barrier(2)

    def crosswise(first: int, second: int, tries: list[int]) -> None:
        def both_rows(conn: Connection) -> None:
            tries.append(1)
            conn.exec_driver_sql(f"UPDATE t SET n = n + 1 WHERE id = {first}")
            if len(tries) == 1:
                both.wait(10)
            conn.exec_driver_sql(f"UPDATE t SET n = n + 1 WHERE id = {second}")

        database.run_sync(both_rows)

    tries: tuple[list[int], list[int]] = ([], [])
    await asyncio.gather(asyncio.to_thread(crosswise, 1, 2, tries[0]), asyncio.to_thread(crosswise, 2, 1, tries[1]))
    # On a busy machine the loser can be back before the winner has woken, and they meet again.
    assert len(tries[0]) + len(tries[1]) >= 3
    assert await database.run(lambda conn: conn.exec_driver_sql("SELECT n FROM t").scalars().all()) == [2, 2]
    await database.close()


async def test_the_server_ends_a_client_that_stops_within_a_transaction(postgres_url: str) -> None:
    database = open_ready(postgres_url)

    def settings(conn: Connection) -> list[object]:
        wanted = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name")
        return [conn.exec_driver_sql(f"SHOW {name}").scalar_one() for name in wanted]

    assert await database.run(settings) == ["10s", "5s", "10s", "tiered"]
    await database.close()
