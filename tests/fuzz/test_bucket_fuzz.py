"""Segment objects and checkpoints from a hostile bucket: whoever reads them refuses them in words, or reads them.

Verify, restore and the read replica read damaged copies of one bucket; so does each parser, by itself. Nothing but the
project's own errors may come out, in bounded memory. A failure names its seed.
"""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.raw import RawConnection
from tests.components.read_replicas import ReplicaThread
from tests.fuzz.hostile_bucket import BucketFuzz
from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID, place_of
from tests.unit.cold.verified_store import verify
from tiered.cold.bucket import checkpoint_walk
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.bucket.segments import load_tail
from tiered.cold.local import LocalStore
from tiered.errors import TieredError
from tiered.formats.producer_snapshot import decode_producers
from tiered.meta import restore
from tiered.meta.engine import Database
from tiered.read_replica.bucket_topics import BucketTopics
from tiered.rules.segments.restore_plan import plan_restore
from tiered.runtime import SystemClock

REFUSALS = (0, 1, 2, 3, 56, 78)
"""Of a Fetch: none, out of range, corrupt, unknown, the store fails, not there yet."""
LONGEST_S = 60
"""Of one look at a bucket of four segments: longer is a hang."""
MEMORY_MIB = 200
"""More than before the first look, at the peak."""


def walk(store: LocalStore, _folder: Path) -> None:
    for page in checkpoint_walk.walk(store, TOPIC_ID, PARTITION):
        for segment in page.segments[:50]:
            try:
                decode_producers(load_tail(store, place_of(segment)).producer_snapshot)
            except TieredError:
                continue


def verified(store: LocalStore, _folder: Path) -> None:
    assert all(each.fault.message for each in verify(store, with_orphans=True).problems)


def restored(store: LocalStore, folder: Path) -> None:
    plan = plan_restore(read_bucket(store, parallel=2), [1])
    if plan.problems:  # Nobody applies it.
        return
    database = Database.open(f"sqlite:///{folder}/restored.db")
    try:
        database.migrate()
        database.run_sync(lambda conn: restore.write(conn, plan, now_ms=1_700_000_000_000))
    finally:
        database.close_sync()


def looked_at(store: LocalStore, _folder: Path) -> None:
    async def run() -> None:
        topics = BucketTopics(store, SystemClock(), interval_ms=600_000)
        async with asyncio.TaskGroup() as tasks:
            try:
                await topics.start(tasks)
                assert sum(1 for _ in topics.partitions()) < 10_000
            finally:
                await topics.stop()
                topics.close()

    try:
        asyncio.run(run())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def served(store: LocalStore, folder: Path) -> None:
    """A whole read replica, asked for everything."""
    with ReplicaThread(folder / "replica", store) as replica, RawConnection(replica) as connection:
        for offset in (0, 5, 239, 240, 500, 959, 960, 2**40):
            found = connection.fetch(TOPIC, offset, partition=PARTITION)
            assert found.error_code in REFUSALS, found


LOOKS: tuple[Callable[[LocalStore, Path], None], ...] = (walk, verified, restored, looked_at)


class _Formatted(logging.Handler):
    """Makes each line, and keeps none: pytest would keep all of ten minutes in memory."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


@contextmanager
def lines_dropped() -> Iterator[None]:
    ours, handler = logging.getLogger("tiered"), _Formatted()
    ours.addHandler(handler)
    ours.propagate = False
    try:
        yield
    finally:
        ours.propagate = True
        ours.removeHandler(handler)


@contextmanager
def no_hang(words: str) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise AssertionError(f"{words}: not done within {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def memory_mib(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def run(folder: Path, *, seed: int, rounds: int | None = None, seconds: float = 0.0, replicas: int = 10) -> int:
    """How many buckets were looked at; every so-many-th by a whole replica too."""
    fuzz = BucketFuzz(folder, seed)
    # Other tests have been in this process: from here on the kernel keeps a new peak.
    Path("/proc/self/clear_refs").write_text("5")
    before_mib = memory_mib("VmRSS")
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + seconds * 1000.0
    number = 0
    while number < rounds if rounds is not None else clock.monotonic_ms() < deadline_ms:
        number += 1
        target = folder / f"bucket-{number}"
        altered = fuzz.damaged(target)
        looks = (*LOOKS, served) if number % replicas == 0 else LOOKS
        for look in looks:
            words = f"seed {seed}, bucket {number} ({', '.join(altered)}), {look.__name__}"
            with no_hang(words):
                try:
                    look(LocalStore(target), target)
                except TieredError:
                    pass
                except Exception as error:
                    raise AssertionError(f"{words}: {type(error).__name__}: {error}") from error
        shutil.rmtree(target)
    grown_mib = memory_mib("VmHWM") - before_mib
    assert grown_mib < MEMORY_MIB, f"seed {seed}: {grown_mib:.0f} MiB"
    return number


def test_a_whole_bucket_is_found_whole(tmp_path: Path) -> None:
    fuzz = BucketFuzz(tmp_path, 1)
    store = LocalStore(fuzz.whole)
    assert verify(store).problems == []
    assert len(read_bucket(store, parallel=2).groups) == 1
    for look in (*LOOKS, served):
        look(store, tmp_path)


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_buckets_are_refused_in_words(tmp_path: Path, seed: int) -> None:
    assert run(tmp_path, seed=seed, rounds=40, replicas=20) == 40


@pytest.mark.fuzz
def test_damaged_buckets_for_long(tmp_path: Path) -> None:
    seconds = 60 * float(os.environ.get("TIERED_FUZZ_MINUTES", "10"))
    seed = int.from_bytes(os.urandom(4), "big")
    with lines_dropped():
        print(f"seed {seed}: {run(tmp_path, seed=seed, seconds=seconds)} buckets")
