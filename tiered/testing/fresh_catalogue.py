"""The SQLite catalogue of a broker that has just been installed, as bytes.

Owns one copy for each process. Made from the tables that the code describes, because importing alembic would cost
a test's first broker a seventh of its second; a contract test lays it beside what the migrations make. Later
migrations find it at the newest revision, like any other catalogue.
"""

import sqlite3
import threading

_making = threading.Lock()
_made: list[bytes] = []


def fresh_catalogue() -> bytes:
    """The file's content. The first call of a process makes it, later ones copy."""
    with _making:
        if not _made:
            _made.append(_newest())
        return _made[0]


def _newest() -> bytes:
    from sqlalchemy import create_engine, insert

    from tiered.meta import migrations, views
    from tiered.meta.tables import ONLY_ROW, metadata, producer_id_block

    engine = create_engine("sqlite://")
    try:
        with engine.begin() as conn:
            metadata.create_all(conn)
            views.install(conn, migrations.REVISIONS[-1])
            conn.exec_driver_sql(
                "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
                "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
            )
            conn.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (migrations.REVISIONS[-1],))
            conn.execute(insert(producer_id_block).values(id=ONLY_ROW, next_producer_id=0))
        with engine.connect() as conn:
            driver = conn.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            return driver.serialize()
    finally:
        engine.dispose()
