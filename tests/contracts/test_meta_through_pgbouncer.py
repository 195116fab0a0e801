"""The metadata store through a real PgBouncer: session mode works, the other two are refused before anything runs."""

import queue
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection

from tests.broker_process import BrokerProcess
from tests.catalogue import create_topic, open_ready
from tests.contracts.topic_names import names
from tests.support.pgbouncer import pgbouncer
from tiered.cli.main import main
from tiered.errors import InvalidConfig, MetadataUnavailable
from tiered.meta.engine import Database

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]
pytest_plugins = ["tests.postgres"]

NOT_KEPT = r"does not keep sessions.*pool_mode=session"
MAX_SESSIONS = 7
"""For one broker: docs/sql.md."""


def setting(conn: Connection, name: str) -> str:
    return str(conn.exec_driver_sql(f"SHOW {name}").scalar_one())


def test_session_mode_has_the_time_outs_hears_of_changes_and_prepares_statements(postgres_url: str) -> None:
    with pgbouncer(postgres_url, pool_mode="session") as url:
        database = open_ready(url)
        heard: queue.Queue[None] = queue.Queue()
        database.listen(lambda: heard.put(None))
        heard.get(timeout=20)  # It has connected.
        for number in range(8):  # The driver prepares what it runs for the sixth time.
            database.run_sync(partial(create_topic, name=f"t{number}"))
        heard.get(timeout=20)
        assert len(database.run_sync(names)) == 8
        prepared = "SELECT count(*) FROM pg_prepared_statements"
        assert database.run_sync(lambda conn: conn.exec_driver_sql(prepared).scalar_one()) > 0
        time_outs = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        assert [database.run_sync(partial(setting, name=name)) for name in time_outs] == ["10s", "5s", "10s"]
        database.close_sync()


def test_session_mode_that_drops_options_keeps_the_time_outs_of_the_url(postgres_url: str) -> None:
    with pgbouncer(postgres_url, pool_mode="session", ignore_startup_parameters="options") as url:
        database = Database.open(f"{url}&options=-c%20lock_timeout%3D7s")
        assert database.run_sync(partial(setting, name="lock_timeout")) == "7s"
        assert database.run_sync(partial(setting, name="statement_timeout")) == "10s"
        database.close_sync()


def test_a_server_that_became_read_only_is_refused_though_the_pooler_remembers_otherwise(postgres_url: str) -> None:
    with pgbouncer(postgres_url, pool_mode="session") as url, psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET default_transaction_read_only = on")
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        admin.execute(f"SELECT pg_terminate_backend(pid, 20000) {others}")
        database = Database.open(url)
        with pytest.raises(MetadataUnavailable, match=r"session is read-only.*try again later"):
            database.run_sync(names)
        database.close_sync()


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("is_in_turn", [0, 1])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_shared_sessions_are_refused_and_left_as_they_were(
    postgres_url: str, mode: str, is_in_turn: int, servers: int
) -> None:
    with pgbouncer(postgres_url, pool_mode=mode, default_pool_size=servers, server_round_robin=is_in_turn) as url:
        _fill_pool(url, postgres_url, servers)
        database = Database.open(url)
        with pytest.raises(InvalidConfig, match=NOT_KEPT):
            database.run_sync(names)
        database.close_sync()
        with psycopg.connect(url, autocommit=True) as conn:
            assert [conn.execute("SHOW statement_timeout").fetchone() for _ in range(servers)] == [("0",)] * servers


def _fill_pool(url: str, server_url: str, servers: int) -> None:
    """The pool has so many idle server processes afterwards, as one that others use."""

    def wait(_: int) -> None:
        with psycopg.connect(url, autocommit=True) as client:
            client.execute("SELECT pg_advisory_xact_lock_shared(1)")

    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(server_url, autocommit=True) as lock, ThreadPoolExecutor(servers) as threads:
        lock.execute("SELECT pg_advisory_lock(1)")
        clients = threads.map(wait, range(servers))
        while lock.execute(waiting).fetchone() != (servers,):
            pass
        lock.execute("SELECT pg_advisory_unlock(1)")
        assert len(list(clients)) == servers


def test_a_pool_of_one_session_is_refused_in_words(postgres_url: str) -> None:
    with pgbouncer(postgres_url, pool_mode="session", default_pool_size=1) as url:
        database = Database.open(url, deadline_ms=4_000)
        with pytest.raises(
            MetadataUnavailable, match=r"no answer within 2 s after the login.*pool_size.*try again later"
        ):
            database.run_sync(names, deadline_ms=60_000)
        database.close_sync()


def test_a_broker_serves_through_session_mode_with_as_many_sessions_as_the_guide_says(
    postgres_url: str, tmp_path: Path
) -> None:
    with pgbouncer(postgres_url, pool_mode="session", default_pool_size=MAX_SESSIONS) as url:
        broker = BrokerProcess(tmp_path / "data", "--meta", url).start()
        try:
            broker.get("/readyz")
            assert broker.stop() == 0
        finally:
            broker.ensure_stopped()
        assert "does not tell of changes" not in broker.log()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_broker_refuses_shared_sessions_before_it_is_ready(postgres_url: str, tmp_path: Path, mode: str) -> None:
    with pgbouncer(postgres_url, pool_mode=mode) as url:
        broker = BrokerProcess(tmp_path / "data", "--meta", url)
        done = subprocess.run(broker.command(), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(NOT_KEPT, done.stderr)
    assert "Traceback" not in done.stderr


def test_the_doctor_names_shared_sessions(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pgbouncer(postgres_url, pool_mode="transaction") as url:
        assert main(["doctor", "--meta", url]) == 1
    assert re.search(NOT_KEPT, " ".join(capsys.readouterr().out.split()))
