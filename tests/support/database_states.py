"""States of a PostgreSQL server that tests keep and bring back, as a promoted standby or a restored backup does."""

import shutil
import subprocess
from pathlib import Path

from tests.postgres import PostgresServer


class DatabaseStates:
    """Copies of the whole server, by name, in `folder`. The server is stopped meanwhile and runs afterwards."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._names: set[str] = set()

    def keep(self, name: str) -> None:
        self._server.stop("fast")
        self._copy(self._server.data, self._folder / name)
        self._names.add(name)
        self._server.start()

    def bring_back(self, name: str, *, keep: str) -> None:
        """Replaces the server's state by the kept one; `keep` names the state that was replaced."""
        self._server.stop("fast")
        self._server.data.rename(self._folder / keep)
        self._names.add(keep)
        self._copy(self._folder / name, self._server.data)
        self._server.start()

    def forget(self) -> None:
        """Deletes the copies."""
        for name in self._names:
            shutil.rmtree(self._folder / name)
        self._names.clear()

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)
