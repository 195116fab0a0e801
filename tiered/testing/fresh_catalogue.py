"""The SQLite catalogue of a broker that has just been installed, as bytes.

Owns one copy for each process: a test's later brokers copy the file instead of making the tables again.
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
    from sqlalchemy import create_engine

    from tiered.meta import migrations

    engine = create_engine("sqlite://")
    try:
        with engine.begin() as conn:
            migrations.create(conn)
        with engine.connect() as conn:
            driver = conn.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            return driver.serialize()
    finally:
        engine.dispose()
