"""A cluster of real processes: brokers, PostgreSQL and an S3 API, with a faulty link between any two of them.

Owns the processes and their folder. Each broker has its own way to PostgreSQL and to S3, and its advertised address
is a port of the proxy, so that whoever connects to it crosses a link that can be cut.
"""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url

from tests.broker_process import BrokerProcess
from tests.cluster.clocks import ClockFile
from tests.cluster.network import S3, SQL, Network, broker_name
from tests.cluster.object_store import BUCKET, PREFIX, ObjectStore
from tests.postgres import PostgresServer
from tests.support.credentials_file import CredentialsFile
from tests.support.database_states import DatabaseStates
from tests.support.memory import folder_in_memory
from tests.support.small_disks import resize, shrink_to_what_is_used, small_disk
from tiered.testing.moto_s3 import ENVIRON

DEFAULTS: dict[str, object] = {"default.replication.factor": 3, "min.insync.replicas": 2}
UNLIMITED = "unlimited"
SMALL_DISK_BYTES = 1 << 30
"""The disk is in memory, and takes only as much as is written to it: a fifth of this in an hour of soak."""


class ClusterProcesses:
    """N brokers, not started until `start`. Used as a context, which kills whatever still runs."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        seed: int = 0,
        small_disk_of: int | None = None,
    ) -> None:
        """The broker `small_disk_of` has a disk of its own, which `fill_small_disk` fills: that needs root."""
        self.folder = folder
        self.ids = tuple(range(1, brokers + 1))
        self.settings = {**DEFAULTS, **(settings or {})}
        self.brokers: dict[int, BrokerProcess] = {}
        self.paused: set[int] = set()
        self.ports: dict[int, int] = {}
        self.clocks: dict[int, ClockFile] = {}
        self.small_disk_of = small_disk_of
        self._session = 1
        self._files: dict[int, tuple[int, int]] = {}
        """Limits on open files, before they were lowered."""
        self._seed = seed
        self._stack = ExitStack()
        self._sql_runs = False
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Unix sockets have short names (107 bytes), so PostgreSQL does not live in a test's folder.
            sql_folder = folder_in_memory("tiered-pg-")
            stack.callback(shutil.rmtree, sql_folder, ignore_errors=True)
            self.postgres = PostgresServer(sql_folder)
            self._sql_runs = True
            stack.callback(self._stop_sql_for_good)
            self._states = DatabaseStates(self.postgres, sql_folder)
            self._credentials = CredentialsFile(self.folder / "credentials")
            self._credentials.write(self.access_key)
            self.store = stack.enter_context(ObjectStore(self.folder, brokers=len(self.ids)))
            self.network = stack.enter_context(Network(self.folder, seed=self._seed))
            self.network.aim(SQL, str(sql_folder / ".s.PGSQL.5432"))
            for broker_id in self.ids:
                self._make(broker_id)
            if self.small_disk_of is not None:
                stack.enter_context(_small_disk_that_stays(self.brokers[self.small_disk_of].data))
            stack.callback(self._kill_all)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if self._engine is not None:
            self._engine.dispose()
        self._stack.close()

    def _make(self, broker_id: int) -> None:
        name = broker_name(broker_id)
        sql_port = self.network.listen(SQL, source=name)
        s3_name = f"{S3}-{broker_id}"
        s3_port = self.network.listen(s3_name, source=name)
        s3_url = make_url(self.store.urls[broker_id])
        self.network.aim(s3_name, ("127.0.0.1", s3_url.port or 80))
        self.ports[broker_id] = self.network.listen(name)
        self.clocks[broker_id] = ClockFile(self.folder / f"clock-{broker_id}")
        self.brokers[broker_id] = BrokerProcess(
            self.folder / name,
            *("--broker-id", str(broker_id), "--rack", f"rack-{broker_id}"),
            *("--advertise", f"127.0.0.1:{self.ports[broker_id]}"),
            *("--meta", f"postgresql://postgres@127.0.0.1:{sql_port}/postgres?sslmode=disable&gssencmode=disable"),
            *("--store", f"s3://{BUCKET}/{PREFIX}?endpoint_url=http://127.0.0.1:{s3_port}"),
            settings=self.settings,
            environ={
                **ENVIRON,
                # The shared file alone has credentials.
                "AWS_ACCESS_KEY_ID": "",
                "AWS_SECRET_ACCESS_KEY": "",
                "AWS_SHARED_CREDENTIALS_FILE": str(self._credentials.path),
                **self.clocks[broker_id].environ(),
            },
        )

    # The brokers

    @property
    def bootstrap(self) -> str:
        """Every broker's advertised address."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, *broker_ids: int) -> None:
        """Starts these brokers, or all, one after another; each is ready when this returns."""
        for broker_id in broker_ids or self.ids:
            broker = self.brokers[broker_id].start()
            self.network.aim(broker_name(broker_id), ("127.0.0.1", broker.kafka_port))

    def runs(self, broker_id: int) -> bool:
        process = self.brokers[broker_id].process
        return process is not None and process.poll() is None

    def kill(self, broker_id: int) -> None:
        """kill -9, paused or not."""
        self.paused.discard(broker_id)
        self.brokers[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        """A controlled shutdown."""
        code = self.brokers[broker_id].stop()
        assert code == 0, self.brokers[broker_id].log()[-4000:]

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: it is there, and does nothing."""
        os.kill(self.brokers[broker_id].pid, signal.SIGSTOP)
        self.paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        if broker_id in self.paused:
            os.kill(self.brokers[broker_id].pid, signal.SIGCONT)
            self.paused.discard(broker_id)

    def fill_disk(self, broker_id: int) -> None:
        """No file of this broker can grow from now on, its own log on stderr included: EFBIG, as a quota gives it."""
        self._limit_files(broker_id, "1")

    def free_disk(self, broker_id: int) -> None:
        self._limit_files(broker_id, UNLIMITED)

    def _limit_files(self, broker_id: int, limit: str) -> None:
        pid = self.brokers[broker_id].pid
        subprocess.run(["prlimit", f"--pid={pid}", f"--fsize={limit}:{UNLIMITED}"], check=True)

    def fill_small_disk(self, besides_bytes: int) -> None:
        """So much is free from now on. ENOSPC, and statvfs shows it."""
        assert self.small_disk_of is not None, "no broker has a small disk"
        shrink_to_what_is_used(self.brokers[self.small_disk_of].data, besides_bytes=besides_bytes)

    def empty_small_disk(self) -> None:
        if self.small_disk_of is not None:
            assert resize(self.brokers[self.small_disk_of].data, SMALL_DISK_BYTES)

    def take_files(self, broker_id: int, besides: int) -> None:
        """The broker can open so many files more than it has open now, and no others: EMFILE."""
        pid = self.brokers[broker_id].pid
        soft, hard = self._files[broker_id] = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        count = len(os.listdir(f"/proc/{pid}/fd")) + besides
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(count, soft), hard))

    def give_files(self, broker_id: int) -> None:
        limits = self._files.pop(broker_id, None)
        if limits is not None:
            resource.prlimit(self.brokers[broker_id].pid, resource.RLIMIT_NOFILE, limits)

    def wipe(self, broker_id: int) -> None:
        """The broker's disk is replaced by an empty one. It must not run."""
        assert not self.runs(broker_id)
        for path in self.brokers[broker_id].data.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _kill_all(self) -> None:
        for broker_id, broker in self.brokers.items():
            self.resume(broker_id) if self.runs(broker_id) else None
            broker.ensure_stopped()

    # The store's sessions

    @property
    def access_key(self) -> str:
        """That of the session in the brokers' shared credentials file."""
        return f"SESSION{self._session:09}"

    def expire_session(self) -> None:
        """The store refuses the credentials in the brokers' file from now on."""
        self.store.expire(self.access_key)

    def renew_session(self) -> None:
        """Puts the next session into the brokers' file."""
        self._session += 1
        self._credentials.write(self.access_key)

    # PostgreSQL

    def stop_sql(self) -> None:
        """As `kill -9` of every process of it: no farewell, and recovery at the next start."""
        self.postgres.stop()
        self._sql_runs = False

    def start_sql(self) -> None:
        if not self._sql_runs:
            self.postgres.start()
            self._sql_runs = True

    def promote_older_sql(self, age_s: float) -> bool:
        """Replaces PostgreSQL by its state of so long ago. Whether a broker has seen what is lost with it: then
        `bring_back_newest_sql` has to follow."""
        self._states.keep("older")
        time.sleep(age_s)
        seen = self._starts_of_sql()
        self._states.bring_back("older", keep="newest")
        if seen <= self._starts_of_sql():
            self._states.forget()
            return False
        return True

    def bring_back_newest_sql(self) -> None:
        """As it was when it was replaced. No broker may run."""
        self._states.bring_back("newest", keep="refused")
        self._states.forget()

    def _starts_of_sql(self) -> set[str]:
        """Those that some broker has met. Nothing is written under another one (decision 0029)."""
        with self.engine.connect() as conn:
            return set(conn.execute(text("SELECT server FROM database_start")).scalars())

    def all_refuse_sql(self) -> bool:
        """Whether every broker knows that the database has lost something, and says so."""
        try:
            healths = [broker.health() for broker in self.brokers.values()]
        except OSError:
            return False
        return all(health["status"] == 503 and health["metadata_went_back"] for health in healths)

    def _stop_sql_for_good(self) -> None:
        if self._sql_runs:
            self.postgres.thaw_all()
            self.postgres.stop()

    @property
    def engine(self) -> Engine:
        """A way to the database that no fault touches."""
        if self._engine is None:
            url = make_url(self.postgres.url()).set(drivername="postgresql+psycopg")
            self._engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)
        return self._engine

    def partition_rows(self, *topics: str) -> list[Any]:
        """Every partition's row with its topic's name, of these topics or of all, as SQL has it."""
        with self.engine.connect() as conn:
            rows = conn.execute(
                text(
                    "SELECT t.name, p.* FROM partition p JOIN topic t USING (topic_id)"
                    " WHERE t.deleted_at_ms IS NULL ORDER BY t.name, p.partition"
                )
            ).all()
        return [row for row in rows if not topics or row.name in topics]

    def committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The group's offset of each partition of the topic that has one, as SQL has it."""
        with self.engine.connect() as conn:
            rows = conn.execute(
                text(
                    "SELECT g.partition, g.committed_offset FROM group_offset g JOIN topic t USING (topic_id)"
                    " WHERE g.group_id = :group AND t.name = :topic AND t.deleted_at_ms IS NULL"
                ),
                {"group": group, "topic": topic},
            ).all()
        return {row.partition: row.committed_offset for row in rows}

    def open_transactions(self) -> list[str]:
        """What SQL has of transactions that did not end, and of offsets that still wait for one."""
        with self.engine.connect() as conn:
            rows = conn.execute(
                text(
                    "SELECT transactional_id AS id, state AS words FROM transactional_producer"
                    " WHERE state IN ('Ongoing', 'PrepareCommit', 'PrepareAbort')"
                    " UNION ALL SELECT group_id, 'an offset waits' FROM transaction_offset"
                )
            ).all()
        return [f"{row.id}: {row.words}" for row in rows]

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader by SQL, -1 for none."""
        row = next(row for row in self.partition_rows(topic) if row.partition == partition)
        leader: int = row.leader
        return leader

    def wait_until(self, claim: Callable[[], bool], what: str, *, timeout_s: float = 60) -> float:
        """Seconds until the claim holds. Raises AssertionError with the end of every broker's log."""
        started = time.monotonic()
        while not claim():
            assert time.monotonic() - started < timeout_s, f"not within {timeout_s} s: {what}\n{self.last_words()}"
            time.sleep(0.05)
        return time.monotonic() - started

    def is_in_sync(self, *topics: str) -> bool:
        """Whether every partition has a leader and all its replicas in the ISR, each with its present registration."""
        with self.engine.connect() as conn:
            epochs = {row.broker_id: row.broker_epoch for row in conn.execute(text("SELECT * FROM broker")).all()}
        return all(
            row.leader >= 0 and {tuple(member) for member in members_of(row)} == {(r, epochs[r]) for r in row.replicas}
            for row in self.partition_rows(*topics)
        )

    def last_words(self) -> str:
        """The end of every broker's log."""
        return "\n".join(f"--- broker {each}\n{broker.log()[-2500:]}" for each, broker in self.brokers.items())

    def heal(self) -> None:
        """Ends every fault but those of a process that does not run."""
        self.network.heal()
        self.store.heal()
        self.start_sql()
        self.postgres.thaw_all()
        for broker_id in self.ids:
            if self.runs(broker_id):
                self.resume(broker_id)
                self.free_disk(broker_id)
                self.give_files(broker_id)
        self.empty_small_disk()
        for clock in self.clocks.values():
            clock.set_offset_s(0)


@contextmanager
def _small_disk_that_stays(folder: Path) -> Iterator[None]:
    """A small disk at `folder`, whose files are in the folder itself when it is gone: evidence of a failed run."""
    kept = folder.with_suffix(".kept")
    with small_disk(folder, SMALL_DISK_BYTES):
        yield
        shutil.copytree(folder, kept)
    folder.rmdir()
    kept.rename(folder)


def members_of(row: Any) -> list[tuple[int, int]]:
    """The ISR of a partition's row as (broker id, broker epoch)."""
    return [
        (member["broker_id"], member["broker_epoch"]) if isinstance(member, dict) else (member[0], member[1])
        for member in row.isr
    ]
