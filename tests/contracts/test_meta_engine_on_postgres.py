"""What `Database` promises while PostgreSQL is away, hangs, refuses or breaks off."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url

from tests.catalogue import create_topic, open_ready
from tests.contracts.topic_names import names
from tiered.errors import InvalidConfig, MetadataOutcomeUnknown, MetadataUnavailable
from tiered.meta.cluster import MAX_IDLE_SETTING
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


def settings(conn: Connection) -> list[object]:
    time_outs = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", MAX_IDLE_SETTING)
    return [conn.exec_driver_sql(f"SHOW {name}").scalar_one() for name in (*time_outs, "application_name")]


async def test_the_server_ends_a_client_that_stops_within_a_transaction(postgres_url: str) -> None:
    database = open_ready(postgres_url)
    assert await database.run(settings) == ["10s", "5s", "10s", "3000", "tiered"]
    await database.close()


async def test_options_of_the_url_win(postgres_url: str) -> None:
    options = quote("-c statement_timeout=7s --lock-timeout=20000 -ctiered.max_idle_in_change_ms=500 -c work_mem=1MB")
    database = Database.open(f"{postgres_url}&options={options}")
    assert await database.run(settings) == ["7s", "20s", "10s", "500", "tiered"]
    assert await database.run(lambda conn: conn.exec_driver_sql("SHOW work_mem").scalar_one()) == "1MB"
    await database.close()


async def test_a_session_that_loses_its_time_outs_is_refused(
    postgres_server: "PostgresServer", caplog: pytest.LogCaptureFixture
) -> None:
    async with _proxy_that_makes_settings_local(postgres_server.url()) as url:
        database = Database.open(url)
        with pytest.raises(
            InvalidConfig, match=r"does not keep statement_timeout: .* 10s, and is 0 .*pool_mode=session"
        ):
            await database.run(lambda conn: conn.execute(text("SELECT 1")))
        database.listen(lambda: None)
        while not re.search("found by polling: .* does not keep statement_timeout", caplog.text):
            await asyncio.sleep(0.01)
        await database.close()


async def test_without_a_pooler_no_second_session_is_opened(postgres_url: str) -> None:
    owner = Database.open(postgres_url)
    await owner.run(lambda conn: conn.execute(text("CREATE ROLE engine_loner LOGIN CONNECTION LIMIT 1")))
    url = make_url(postgres_url).set(username="engine_loner").render_as_string(hide_password=False)
    loner = Database.open(url)
    assert await loner.run(lambda conn: conn.execute(text("SELECT 1")).scalar_one()) == 1
    await loner.close()
    await owner.run(lambda conn: conn.execute(text("DROP ROLE engine_loner")))
    await owner.close()


@asynccontextmanager
async def _proxy_that_makes_settings_local(server_url: str) -> AsyncIterator[str]:
    """A URL of the same database, where each setting ends with the transaction that makes it."""
    url = make_url(server_url)
    server_socket = f"{url.query['host']}/.s.PGSQL.5432"

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while chunk := await source.read(1 << 16):
            target.write(re.sub(rb"(set_config\(\$\d+, \$\d+, )false\)", rb"\1true )", chunk))
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(server_socket)
        await asyncio.gather(pass_on(reader, server_writer), pass_on(server_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        yield url.set(host="127.0.0.1", port=port, query={"sslmode": "disable"}).render_as_string(hide_password=False)
