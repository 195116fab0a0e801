"""The data folder: where things are in it, and the lock that keeps a second broker out.

Owns the folder's layout and its lock. Must never read a log.
"""

import fcntl
import json
import logging
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from tiered.errors import AlreadyRunning, InvalidConfig
from tiered.hot.file_system import RealFileSystem, replace_file
from tiered.ids import DataFolderOwner, KeptDisk, TopicPartition

log = logging.getLogger(__name__)

OWNER_FILE = "owner.json"
"""Says whose folder this is: `{"version": 1, "cluster_id": text, "broker_id": number}`."""


_MADE_BEFORE_SERVING = frozenset(
    {"lock", "reserve", "log", "cache", "meta.db", "meta.db-journal", "meta.db-shm", "meta.db-wal"}
)
"""What stands in the folder until a database knows of this broker."""


def require_folder(path: Path) -> None:
    """Returns when the path is a folder, or may become one. Raises InvalidConfig that names what stands there instead,
    and OSError."""
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        what = "a file" if there.is_file() else "no folder"
        raise InvalidConfig(f"--data {path} cannot be a folder, for {there} is {what}: choose another --data")


def owner_of(root: Path) -> DataFolderOwner | None:
    """Whose the folder is; None where no broker has registered with it. Raises InvalidConfig, OSError."""
    path = root / OWNER_FILE
    try:
        owner = json.loads(path.read_text())
        return DataFolderOwner(int(owner["broker_id"]), str(owner["cluster_id"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidConfig(f"{path} is damaged: put it back, or remove it to take the folder as it is") from error


class DataFolder:
    """An opened, locked data folder; `release` lets the next broker in."""

    def __init__(self, root: Path) -> None:
        """Creates what is missing. Raises AlreadyRunning when another process holds the folder, InvalidConfig when

        it cannot be made or written.
        """
        self.root = root
        self._made = [each for each in (root, *root.parents) if not os.path.lexists(each)]
        """The folder and those above it that are made now, innermost first."""
        try:
            require_folder(root)
            # Records were told to this broker, not to every user of the machine. A folder that is there keeps its mode.
            self.log_root.mkdir(mode=0o700, parents=True, exist_ok=True)
            # It is cut to nothing below, which must not befall whatever a link in its place leads to.
            self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if root.stat().st_mode & stat.S_IWOTH:
                log.warning(
                    "every user of this machine can write to %s, and so can remove records and forge this broker's "
                    "notes: chmod o-w it", root,
                )  # fmt: skip
        except OSError as error:
            raise InvalidConfig(
                f"the data folder {root} cannot be used ({error.filename}: {error.strerror}): make it writable for "
                "this user, or choose another --data"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            os.close(self._lock)
            raise AlreadyRunning(
                f"another broker (process {holder or 'unknown'}) serves {root}: stop it, or choose another --data"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def remove_if_new(self) -> None:
        """After a start that was refused: leaves no folder behind that was not there before.

        Removes only what a start itself makes, and nothing at all once there is anything else: records, or the note
        that a database may know this folder by.
        """
        if self.root not in self._made:
            return
        with suppress(OSError):
            names = set(os.listdir(self.root))
            if names - _MADE_BEFORE_SERVING or any(self.log_root.iterdir()):
                return
            for name in names - {"log", "cache"}:
                (self.root / name).unlink(missing_ok=True)
            # A folder that is not empty stays, and so does its parent.
            for folder in (*(self.root / name for name in names & {"log", "cache"}), *self._made):
                folder.rmdir()

    @property
    def log_root(self) -> Path:
        return self.root / "log"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def log_of(self, topic_partition: TopicPartition) -> Path:
        """Directories go by topic id: a recreated topic never meets its predecessor's files."""
        return self.log_root / str(topic_partition.topic_id) / str(topic_partition.partition)

    def require_own(
        self, cluster_id: str, broker_id: int, *, kept: Collection[KeptDisk] = (), broker_epoch: int | None = None
    ) -> None:
        """Returns when the folder is this broker's, or nobody's yet, or the one that a restore `kept` for this broker,
        whose last registration was `broker_epoch`. Raises InvalidConfig for another's: its logs would be taken for
        lost, and its offsets given out twice. Raises OSError."""
        owner = owner_of(self.root)
        if owner == DataFolderOwner(broker_id, cluster_id):
            return
        own = next((disk for disk in kept if disk.broker_id == broker_id), None)
        if own is not None and owner == own.owner:
            if own.broker_epoch != (-1 if broker_epoch is None else broker_epoch):
                raise InvalidConfig(
                    f"the cluster was restored with a report of {self.root}, and broker {broker_id} was started since: "
                    "what its logs hold now is not known. Restore once more, with a report of what it is now"
                )
            return
        if own is not None:
            raise InvalidConfig(
                f"the cluster was restored with the disk that broker {broker_id} had in cluster {own.cluster_id}, "
                f"which leads where its log was the furthest, and {self.root} is not that disk: start with the --data "
                "of that time. If the disk is lost, restore once more without it"
            )
        if owner is None:
            return
        if owner.cluster_id != cluster_id:
            raise InvalidConfig(
                f"the data folder {self.root} belongs to cluster {owner.cluster_id}, and --meta is that of "
                f"cluster {cluster_id}: give the --meta URL that belongs to it, or another --data"
            )
        raise InvalidConfig(
            f"the data folder {self.root} belongs to broker {owner.broker_id}: start with --broker-id "
            f"{owner.broker_id}, or with another --data"
        )

    def become_owned(self, cluster_id: str, broker_id: int) -> None:
        """Writes down whose folder this is. Raises OSError."""
        if owner_of(self.root) != DataFolderOwner(broker_id, cluster_id):
            owner = {"version": 1, "cluster_id": cluster_id, "broker_id": broker_id}
            replace_file(RealFileSystem(), str(self.root / OWNER_FILE), json.dumps(owner).encode(), durable=True)

    def topics_on_disk(self) -> list[UUID]:
        """The ids of all topics that have a directory here."""
        found = []
        for path in self.log_root.iterdir():
            try:
                found.append(UUID(path.name))
            except ValueError:
                continue
        return found

    def logs_on_disk(self) -> list[Path]:
        """The directories of all partitions that have one here, whoever asks for them."""
        topics = sorted(self.log_root / str(topic_id) for topic_id in self.topics_on_disk())
        return [path for topic in topics for path in sorted(topic.iterdir()) if path.name.isdecimal() and path.is_dir()]

    def log_count(self) -> int:
        """How many logs are in the folder. Blocks; raises OSError."""
        return sum(len(os.listdir(topic)) for topic in self.log_root.iterdir() if topic.is_dir())

    def disk_bytes(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds the folder."""
        found = os.statvfs(self.root)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

    def release(self) -> None:
        os.close(self._lock)
