"""A real PgBouncer before a PostgreSQL of the tests: Debian's package, which `make interop` installs.

Owns the process and its folder. Listens on a unix socket only, which as the server's own believes whoever connects.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.engine import make_url

from tests.support.memory import folder_in_memory
from tiered.cli.local_cluster.embedded_postgres import NOBODY

START_S = 20
MISSING = "PgBouncer is missing (Debian, Ubuntu: apt-get install pgbouncer)"


@contextmanager
def pgbouncer(server_url: str, **settings: object) -> Iterator[str]:
    """The URL of the same database through a PgBouncer with its own defaults, but for `settings`."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, MISSING
    server = make_url(server_url)
    folder = folder_in_memory("tiered-pgb-")
    users, configuration = folder / "users", folder / "pgbouncer.ini"
    users.write_text(f'"{server.username}" "{server.password or ""}"\n')
    here = {"listen_addr": "", "unix_socket_dir": folder, "auth_type": "trust", "auth_file": users}
    lines = [f"{name} = {value}" for name, value in (here | settings).items()]
    configuration.write_text(
        "\n".join(
            [
                "[databases]",
                f"* = host={server.query.get('host', server.host)} port={server.port or 5432}",
                "[pgbouncer]",
                *lines,
            ]
        )
    )
    user = NOBODY if os.geteuid() == 0 else None
    for path in (folder, users, configuration):
        os.chown(path, user or -1, user or -1)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, str(configuration)], user=user, group=user, stdout=log, stderr=log)
    try:
        url = server.set(host=None, port=None, drivername="postgresql", query={"host": str(folder), "port": "6432"})
        _wait_until_it_answers(url.render_as_string(hide_password=False), process)
        yield url.render_as_string(hide_password=False)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]") -> None:
    give_up_s = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert process.poll() is None
            assert time.monotonic() < give_up_s
            time.sleep(0.02)
        else:
            return
