"""A cluster of real processes: brokers, PostgreSQL and an S3 API, with a faulty link between any two of them.

Owns the processes and their folder. Each broker has its own way to PostgreSQL and to S3, and its advertised address
is a port of the proxy, so that whoever connects to it crosses a link that can be cut.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url

from tests.broker_process import BrokerProcess
from tests.cluster.clocks import ClockFile
from tests.cluster.network import S3, SQL, Network, broker_name
from tests.cluster.object_store import BUCKET, PREFIX, ObjectStore
from tests.postgres import PostgresServer
from tests.support.memory import folder_in_memory
from tiered.testing.moto_s3 import ENVIRON

DEFAULTS: dict[str, object] = {"default.replication.factor": 3, "min.insync.replicas": 2}
UNLIMITED = "unlimited"


class ClusterProcesses:
    """N brokers, not started until `start`. Used as a context, which kills whatever still runs."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        seed: int = 0,
    ) -> None:
        self.folder = folder
        self.ids = tuple(range(1, brokers + 1))
        self.settings = {**DEFAULTS, **(settings or {})}
        self.brokers: dict[int, BrokerProcess] = {}
        self.paused: set[int] = set()
        self.ports: dict[int, int] = {}
        self.clocks: dict[int, ClockFile] = {}
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
            self.store = stack.enter_context(ObjectStore(self.folder, brokers=len(self.ids)))
            self.network = stack.enter_context(Network(self.folder, seed=self._seed))
            self.network.aim(SQL, str(sql_folder / ".s.PGSQL.5432"))
            for broker_id in self.ids:
                self._make(broker_id)
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
            environ={**ENVIRON, **self.clocks[broker_id].environ()},
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

    def wipe(self, broker_id: int) -> None:
        """The broker's disk is replaced by an empty one. It must not run."""
        assert not self.runs(broker_id)
        shutil.rmtree(self.brokers[broker_id].data)

    def _kill_all(self) -> None:
        for broker_id, broker in self.brokers.items():
            self.resume(broker_id) if self.runs(broker_id) else None
            broker.ensure_stopped()

    # PostgreSQL

    def stop_sql(self) -> None:
        """As `kill -9` of every process of it: no farewell, and recovery at the next start."""
        self.postgres.stop()
        self._sql_runs = False

    def start_sql(self) -> None:
        if not self._sql_runs:
            self.postgres.start()
            self._sql_runs = True

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
        for clock in self.clocks.values():
            clock.set_offset_s(0)


def members_of(row: Any) -> list[tuple[int, int]]:
    """The ISR of a partition's row as (broker id, broker epoch)."""
    return [
        (member["broker_id"], member["broker_epoch"]) if isinstance(member, dict) else (member[0], member[1])
        for member in row.isr
    ]
