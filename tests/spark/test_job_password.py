"""Jobs that find the catalogue's password where `--meta-password` says, at a PostgreSQL that asks for it."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from jobs import compact, export
from tests.postgres import PostgresServer
from tiered.meta.engine import Database

pytest_plugins = ["tests.postgres"]
pytestmark = pytest.mark.spark

PASSWORD = "a:b@c/d?e#f%41 \\ü"


@pytest.fixture
def guarded(postgres_server: PostgresServer, tmp_path: Path) -> str:
    """The URL of a catalogue for a role that nobody is without its password."""
    server = postgres_server
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"local all guarded scram-sha-256\n{rules.read_text()}")
    everybody = create_engine(make_url(server.url()).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with everybody.connect() as conn:
        literal = PASSWORD.replace("'", "''")
        conn.exec_driver_sql(
            f"SET standard_conforming_strings = on; CREATE ROLE guarded SUPERUSER LOGIN PASSWORD '{literal}'".replace(
                "%", "%%"
            )
        )
        conn.exec_driver_sql("SELECT pg_reload_conf()")
        conn.exec_driver_sql("CREATE DATABASE guarded OWNER guarded")
    everybody.dispose()
    database = Database.open(server.url("guarded"))
    database.migrate()
    database.close_sync()
    return server.url("guarded").replace("postgres@", "guarded@")


@pytest.mark.slow
def test_a_job_gets_in_by_a_reference_and_not_without(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"file://{tmp_path}/objects"
    (tmp_path / "objects").mkdir()
    (tmp_path / "password").write_text(PASSWORD + "\n")
    monkeypatch.setenv("CATALOGUE", PASSWORD)
    words = ["--store", store, "--meta", guarded]
    references = (None, f"file:{tmp_path / 'password'}", "env:CATALOGUE")
    said = []
    for reference in references:
        assert compact.main([*words, "--plan", *(["--meta-password", reference] if reference else [])]) == 1
        said.append(capsys.readouterr().err)
    # Whoever is in finds a catalogue that no broker has used yet.
    assert ["describes no cluster" in each for each in said] == [False, True, True]
    exporting = ["--topic", "none", "--table", "shop.none", "--warehouse", f"file://{tmp_path}/tables"]
    assert export.main([*words, *exporting, "--meta-password", "env:CATALOGUE"]) != 0
    said.append(capsys.readouterr().err)
    assert "nothing of Tiered is there" in said[-1].splitlines()[-1]
    assert PASSWORD not in "".join(said)
