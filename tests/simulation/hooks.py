"""Where the checker and the run's seed enter the product's code: wrappers around a log's changes, and randomness.

Installed once in a process that simulates, for the run that is `CURRENT`. Must never change what a function does.
"""

import asyncio
import random
import struct
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar

from sqlalchemy import Connection

from tests.simulation.books import Entry, Violation
from tests.simulation.checker import Checker
from tests.simulation.loop import PROCESS, SimTaskGroup
from tiered import runtime
from tiered.broker.host import disk_reserve
from tiered.broker.partitions.partition import Partition
from tiered.broker.rounds import housekeeping
from tiered.broker.tiering import partition_loader
from tiered.formats import control_record
from tiered.hot.log import Log
from tiered.meta import changes, group_offsets, transactions
from tiered.meta.changes import ChangeSet
from tiered.meta.transactions import TransactionChange


class Hooks:
    """The run that the wrappers report to."""

    checker: Checker | None = None
    report: Callable[[str], None] = print
    """Takes a violation: product code that ends up here must not swallow it."""
    rng: Random = Random(0)
    offsets_written: Callable[[Connection], None] = lambda conn: None
    """Looks at what a transaction of a group coordinator is about to commit."""
    transitions_written: Callable[[Connection, Sequence[TransactionChange]], None] = lambda conn, written: None
    """Looks at what somebody is about to commit of transactions."""
    answers: ClassVar[dict[tuple[int, int], ChangeSet]] = {}
    """Of the change feed, in this run."""
    is_installed = False


def _check(what: str, *args: Any) -> None:
    checker = Hooks.checker
    if checker is not None:
        try:
            getattr(checker, what)(*args)
        except Violation as violation:
            Hooks.report(str(violation))


def install() -> None:
    """Harmless to repeat."""
    if Hooks.is_installed:
        return
    Hooks.is_installed = True
    _install_randomness()
    _install_log()
    _install_partition()
    _install_feed()
    _install_offsets()
    _install_transactions()
    housekeeping.STALL_PROBE_S = 3_600.0  # Nothing ever blocks this loop
    runtime.BEAT_S = 0.001  # Several machines, whose clocks do not begin at the same moment
    disk_reserve.RESERVE_BYTES = 0  # A file of 4 MiB for each start of each broker is what the disk would be busy with


def _install_randomness() -> None:
    runtime.uuid4 = lambda: uuid.UUID(int=Hooks.rng.getrandbits(128), version=4)  # type: ignore[attr-defined]

    class Seeded:
        @staticmethod
        def uniform(low: float, high: float) -> float:
            return Hooks.rng.uniform(low, high)

        def __getattr__(self, name: str) -> Any:
            return getattr(random, name)

    runtime.random = Seeded()  # type: ignore[attr-defined, assignment]
    asyncio.TaskGroup = SimTaskGroup  # type: ignore[misc]


def _install_feed() -> None:
    """All brokers ask the same question after every change: in one state of the database it has one answer."""
    plain = changes.since

    def since(conn: Any, number: int) -> ChangeSet:
        ((now,),) = conn.driver.execute("SELECT change_number FROM cluster").fetchall()
        found = Hooks.answers.get((number, now))
        if found is None:
            found = Hooks.answers[number, now] = plain(conn, number)
        return found

    changes.since = since


def _install_offsets() -> None:
    plain = group_offsets.write

    def write(conn: Connection, *args: Any) -> Any:
        written = plain(conn, *args)
        Hooks.offsets_written(conn)
        return written

    group_offsets.write = write  # type: ignore[assignment]


def _install_transactions() -> None:
    plain = transactions._write

    def write(conn: Connection, transitions: Sequence[TransactionChange], slot_epochs: Any) -> None:
        plain(conn, transitions, slot_epochs)
        Hooks.transitions_written(conn, transitions)

    transactions._write = write


_OF_A_BATCH = struct.Struct(">12x i x I h i").unpack_from
"""Leader epoch, CRC, attributes and last offset delta of a batch's header."""
_CONTROL = 0x20


def _install_log() -> None:
    plain_open = partition_loader.open_log  # type: ignore[attr-defined]

    def open_log(*args: Any, **kwargs: Any) -> Log:
        log = plain_open(*args, **kwargs)
        _check("log_opened", log)
        return log

    partition_loader.open_log = open_log  # type: ignore[attr-defined]

    plain_append = Log.append

    def append(log: Log, buffer: memoryview, position: int, end: int, headers: Any, **kwargs: Any) -> Any:
        answer = plain_append(log, buffer, position, end, headers, **kwargs)
        entries: list[Entry] = []
        for at, header in headers:
            leader_epoch, crc, attributes, last_offset_delta = _OF_A_BATCH(buffer, at)
            if attributes & _CONTROL:
                _check("marker_appended", crc, header, control_record.read_marker(buffer, at, header))
            entries.extend([(leader_epoch, crc)] * (last_offset_delta + 1))
        _check("appended", log, entries)
        return answer

    Log.append = append  # type: ignore[method-assign, assignment]
    for name in ("truncate_to", "truncate_fully_and_start_at", "delete_local_before"):
        setattr(Log, name, _then_cut(getattr(Log, name)))


def _then_cut(plain: Callable[..., Any]) -> Callable[..., Any]:
    def changed(log: Log, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain(log, *args, **kwargs)
        finally:
            _check("cut", log)

    return changed


def _install_partition() -> None:
    plain_init = Partition.__init__

    def init(partition: Partition, **kwargs: Any) -> None:
        plain_init(partition, **kwargs)
        process = PROCESS.get()
        if process is not None:
            process.partitions.append(partition)
            if Hooks.checker is not None:
                Hooks.checker.book(partition.topic_partition).name = partition.name

    Partition.__init__ = init  # type: ignore[method-assign, assignment]
