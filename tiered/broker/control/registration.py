"""How this process becomes the broker of its id, and what tells the next one that nothing of its log was lost.

Owns the one transaction of a registration, the wait for a number that somebody else has, the list of the processes that
registered from this data folder, and the marker file (rule 8). `rules.replication.number_claim` decides which process
this one may replace, and SQL makes it a compare-and-swap. A restart is clean when the marker names the epoch that SQL
has for this broker, and the log cannot have lost anything since: the machine has not been booted again (the page cache
outlives a kill), or everything was flushed by a controlled shutdown. Where there is no marker an fsync may have failed,
and the page cache says nothing about the disk: then all logs are written again first. Must never write the marker
before that, or before the registration was answered, nor leave one where a log met an I/O error.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.control.heartbeats import interval_ms
from tiered.broker.host.marker import MARKER_FILE, Marker, read_marker
from tiered.cold.opening import is_same_store, store_identity
from tiered.config.addresses import host_and_port
from tiered.config.listeners import ListenerOptions
from tiered.errors import InvalidConfig, LogDirFailed, LostRace, MetadataOutcomeUnknown, StoreTrouble
from tiered.hot.file_system import read_whole, replace_file
from tiered.hot.opening import write_again
from tiered.ids import TopicId
from tiered.meta import brokers, cluster, coordinator_slots, partitions, security, segments, settings, topics
from tiered.meta.brokers import HTTP_DOOR, HTTPS, BrokerRow, ListenerRow
from tiered.meta.changes import ChangeSet
from tiered.meta.cluster import ClusterRow
from tiered.rules.replication.number_claim import (
    MOST_INCARNATIONS,
    Claim,
    HolderVerdict,
    HolderWatchState,
    with_attempt,
)
from tiered.rules.security.registration_proof import ID_BYTES, proving_id
from tiered.runtime import new_uuid, secret_bytes

log = logging.getLogger(__name__)
T = TypeVar("T")

INCARNATIONS_FILE = "incarnations.json"
"""`{"version": 1, "incarnations": [text, …]}`, as `with_attempt` has them. Where it is lost, a start after a kill may
wait for a session."""
MAX_FILE_BYTES = 100 * MOST_INCARNATIONS
ANSWER_TRIES = 3
READ_DEADLINE_MS = 30_000
"""Several times what the largest catalogue takes. A start whose question was lost on its way waits no longer."""
WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The outcome of a registration, and all rows of SQL at a moment after it."""

    cluster_id: str
    broker_epoch: int
    was_clean: bool
    everything: ChangeSet
    tombstones: tuple[TopicId, ...]


class Registration:
    """One broker's registration and its marker."""

    def __init__(self, *, context: BrokerContext, boot_id: str | None) -> None:
        self._context = context
        self._boot_id = boot_id or read_boot_id()
        self.incarnation_id = proving_id(secret_bytes(ID_BYTES))
        """This process's own, for life. Other brokers take who shows it for this broker: a secret of the cluster."""
        self._path = str(self._context.data.root / MARKER_FILE)
        self._store = store_identity(self._context.options.store_url, data_dir=self._context.data.root)
        self._is_trusted = True
        self._marking = threading.Lock()
        """A log can fail in any thread."""

    # The registration

    async def register(
        self,
        *,
        advertised: tuple[str, int],
        http: tuple[str, int] | None,
        listeners: Sequence[ListenerOptions] = (),
        store_trouble: StoreTrouble | None = None,
    ) -> Registered:
        """This process is the broker of its id from here on; an older one learns of it from its next heartbeat.

        Waits while another process may still be it. Raises InvalidConfig when that one lives, or the metadata store or
        the data folder belongs to somebody else, MetadataUnavailable.
        """
        marker = await self._context.disk.run(self._read)
        if marker is None:
            await self._context.disk.run(self._write_logs_again)
        clean_epoch = None if marker is None else marker.clean_epoch(self._boot_id)
        rows = tuple(
            ListenerRow(name=each.name, protocol=each.protocol, host=each.advertised[0], port=each.advertised[1])
            for each in listeners
        )
        if http is not None and self._context.options.http_tls is not None:
            rows += (ListenerRow(name=HTTP_DOOR, protocol=HTTPS, host=http[0], port=http[1]),)
        among_brokers = self._context.options.inter_broker.name
        reached_at = next((row.host for row in rows if row.name == among_brokers), advertised[0])
        new_cluster_id, now_ms = str(new_uuid()), self._context.clock.now_ms()

        def register(conn: Connection, claim: Claim) -> tuple[str, brokers.RegistrationResult]:
            row = cluster.ensure(conn, cluster_id=new_cluster_id, now_ms=now_ms)
            cluster_id = row.cluster_id
            # Refused before anything is changed: a registration would stop the broker that belongs here.
            self._require_folder(row, marker)
            self._check_others(brokers.load_all(conn), reached_at)
            self._check_store(cluster.claim_store(conn, self._store))
            made = brokers.register(
                conn,
                broker_id=self._context.broker_id,
                host=advertised[0],
                port=advertised[1],
                http_host=None if http is None else http[0],
                http_port=None if http is None else http[1],
                rack=self._context.rack,
                boot_id=self._boot_id,
                clean_epoch=clean_epoch,
                incarnation_id=self.incarnation_id,
                listeners=rows,
                claim=claim,
                store_trouble=store_trouble,
            )
            if row.kept_disks:
                # Before anybody can know that it has registered: then no other folder counts as the one that was kept.
                self._context.data.become_owned(cluster_id, self._context.broker_id)
                cluster.forget_kept_disk(conn, self._context.broker_id)
            return cluster_id, made

        number = NumberClaim(
            context=self._context,
            incarnation_id=self.incarnation_id,
            interval_ms=interval_ms(self._context.options.settings, is_alone=self._context.is_alone),
            check=self._check_cluster,
        )
        cluster_id, made = await number.carry_out(
            lambda claim: self._answered(lambda conn: register(conn, claim)),
            marker_epoch=None if marker is None else marker.broker_epoch,
        )
        self._context.data.become_owned(cluster_id, self._context.broker_id)
        await self._mark(made.broker_epoch, flushed=False)
        if marker is not None and not made.was_clean:
            log.warning("this broker's log may have lost its end: it follows before it leads where others are in sync")
        # Not within the registration, behind whose lock everybody waits: a large metadata store takes seconds to read.
        everything, tombstones = await self._context.database.read(
            lambda conn: (_everything(conn, self._context.broker_id), topics.list_tombstones(conn)),
            deadline_ms=READ_DEADLINE_MS,
        )
        return Registered(
            cluster_id=cluster_id,
            broker_epoch=made.broker_epoch,
            was_clean=made.was_clean,
            everything=everything,
            tombstones=tuple(TopicId(row.topic_id) for row in tombstones),
        )

    async def _answered(
        self, register: Callable[[Connection], tuple[str, brokers.RegistrationResult]]
    ) -> tuple[str, brokers.RegistrationResult]:
        for _ in range(ANSWER_TRIES):
            try:
                return await self._context.database.run(register)
            except MetadataOutcomeUnknown as error:
                # Under the same incarnation it is the same registration.
                log.warning("whether this broker is registered is not known, it asks again: %s", error)
        return await self._context.database.run(register)

    def _check_cluster(self, conn: Connection) -> None:
        """Returns when the catalogue's cluster, if there is one yet, is this data folder's and this store's. Changes
        nothing. Raises InvalidConfig."""
        found = cluster.find(conn)
        if found is not None:
            self._require_folder(found, self._read())
        recorded = cluster.recorded_store(conn)
        if recorded is not None:
            self._check_store(recorded)

    def _require_folder(self, row: ClusterRow, marker: Marker | None) -> None:
        """Returns when the data folder is this broker's in the cluster. Raises InvalidConfig."""
        self._context.data.require_own(
            row.cluster_id,
            self._context.broker_id,
            kept=row.kept_disks,
            broker_epoch=None if marker is None else marker.broker_epoch,
        )

    def _check_others(self, registered: Sequence[BrokerRow], host: str) -> None:
        """Returns when this broker can work together with those that are registered. Raises InvalidConfig."""
        others = [row for row in registered if row.broker_id != self._context.broker_id]
        if others and self._context.is_alone:
            raise InvalidConfig(
                f"the database belongs to broker {others[0].broker_id}: start with --broker-id {others[0].broker_id}, "
                "or give this broker a --meta URL of its own; only PostgreSQL serves several brokers"
            )
        if others and host in WILDCARD_ADDRESSES:
            raise InvalidConfig(
                f"other brokers cannot reach this one at {host}: tell them an address with --advertise HOST:PORT"
            )
        for row in others:
            there = row.address(self._context.options.inter_broker.name)
            if there is not None and there[0] in WILDCARD_ADDRESSES and not row.fenced:
                raise InvalidConfig(
                    f"broker {row.broker_id} cannot be reached by others at {there[0]}: start it with --advertise "
                    "HOST:PORT first"
                )

    def _check_store(self, recorded: str) -> None:
        """Returns when this broker's store is the cluster's. Raises InvalidConfig."""
        own = self._store
        if is_same_store(own, recorded):
            return
        move = f"UPDATE cluster SET store = '{own}'"  # noqa: S608 - shown, never run; an identity holds no quote
        raise InvalidConfig(
            f"this broker's object store is {own}, and the cluster's is {recorded}: what it uploads would be where no "
            "other broker looks. Start it with the cluster's --store, or, for a cluster of its own, with another "
            "--meta. To move the cluster: stop every broker, copy all objects, then run this in the metadata store's "
            f"database: {move} (docs/operations.md, Move to another bucket)"
        )

    # The marker

    def has_failed_log(self) -> bool:
        """Whether a log met an I/O error in this process: what it opens now has to be written again first."""
        return not self._is_trusted

    def _write_logs_again(self) -> None:
        """Before there is a marker: once there is one, nobody looks for what a failed fsync has left behind."""
        for directory in self._context.data.logs_on_disk():
            try:
                write_again(self._context.files, str(directory), is_stopping=self._context.disk.is_closing)
            except LogDirFailed as error:
                log.error("%s", error)
                self.log_failed()

    def log_failed(self) -> None:
        """A log met an I/O error: what is on the disk is not known any more, whatever is written from now on.

        Blocking, and from any thread: a process that is killed a moment later must not leave the marker behind.
        """
        with self._marking:
            if self._is_trusted:
                self._is_trusted = False
                self._remove()

    async def logs_flushed(self) -> None:
        """Every log was flushed and closed, and nobody appends any more: the next start is clean on any machine."""
        await self._mark(self._context.state.broker_epoch, flushed=True)

    async def _mark(self, broker_epoch: int, *, flushed: bool) -> None:
        """An error only makes the next start unclean."""
        marker = Marker(broker_epoch=broker_epoch, boot_id=self._boot_id, flushed=flushed)
        await self._context.disk.run(self._write, marker)

    def _read(self) -> Marker | None:
        return read_marker(self._context.files, self._path)

    def _write(self, marker: Marker) -> None:
        fields = {"version": 1, "broker_epoch": marker.broker_epoch, "boot_id": marker.boot_id}
        data = json.dumps({**fields, "flushed": marker.flushed}).encode()
        with self._marking:
            if not self._is_trusted:
                return
            try:
                replace_file(self._context.files, self._path, data, durable=True)
            except OSError as error:
                log.warning(
                    "%s cannot be written (%s): the next start takes this log for one that lost its end",
                    self._path, error,
                )  # fmt: skip
                self._remove()

    def _remove(self) -> None:
        files = self._context.files
        try:
            files.unlink(self._path)
            files.sync_directory(str(self._context.data.root))
        except FileNotFoundError:
            pass
        except OSError as error:
            log.error("%s cannot be removed (%s): remove it before this broker starts again", self._path, error)


def read_boot_id() -> str:
    """Another one after each boot of this machine; where that cannot be told, another one every time."""
    try:
        return BOOT_ID_FILE.read_text().strip()
    except OSError:
        return str(new_uuid())


def _everything(conn: Connection, broker_id: int) -> ChangeSet:
    """All that is not deleted, as one set of changes. Segments are those of partitions that the broker holds."""
    return ChangeSet(
        number=cluster.load(conn).change_number,
        topics=topics.load_all(conn),
        partitions=partitions.load_all(conn),
        brokers=brokers.load_all(conn),
        segments=segments.load_committed(conn, replica=broker_id),
        broker_configs=settings.load_all(conn),
        slots=coordinator_slots.changed_since(conn, -1),
        security=security.load_all(conn),
        resource_configs=settings.load_resources(conn),
    )


class NumberClaim:
    """The way of one process to its number, once."""

    def __init__(
        self, *, context: BrokerContext, incarnation_id: UUID, interval_ms: float, check: Callable[[Connection], None]
    ) -> None:
        self._context = context
        self._check = check
        """Raises InvalidConfig where this process has no place in the cluster, whoever has the number: that is said
        at once, and not after a wait."""
        self._incarnation_id = incarnation_id
        self._interval_ms = interval_ms
        self._path = str(self._context.data.root / INCARNATIONS_FILE)
        self._watch = HolderWatchState(
            session_timeout_ms=self._context.settings.cluster.broker_session_timeout_ms, interval_ms=interval_ms
        )

    async def carry_out(self, register: Callable[[Claim], Awaitable[T]], *, marker_epoch: int | None) -> T:
        """The result of `register` for a claim that holds.

        Raises InvalidConfig when another process has the number or the data folder, and the errors of `register`.
        """
        known = with_attempt(await self._context.disk.run(self._read), self._incarnation_id)
        own = Claim(incarnations=frozenset(known), marker_epoch=marker_epoch)
        is_waiting = False
        # Three sessions of looks at the most: a holder that is not silent then stays.
        while True:
            row = await self._context.database.read(self._look)
            claim = own if row is None or own.may_replace(row.holder) else self._watched(own, row)
            if claim is not None:
                # Before it registers: a process that is killed as soon as it has is known to the next one.
                await self._context.disk.run(self._write, known)
                try:
                    made = await register(claim)
                except LostRace as error:
                    log.warning("%s: this one looks again", error)
                else:
                    await self._context.disk.run(self._write, (self._incarnation_id,))
                    return made
            elif row is not None and not is_waiting:
                is_waiting = True
                log.warning(
                    "broker %d is registered from another data folder, at %s: this process takes its place when it has "
                    "been silent for a session", row.broker_id, _whereabouts(row),
                )  # fmt: skip
            await asyncio.sleep(self._interval_ms / 1000.0)

    def _look(self, conn: Connection) -> BrokerRow | None:
        self._check(conn)
        return brokers.load(conn, self._context.broker_id)

    def _watched(self, own: Claim, row: BrokerRow) -> Claim | None:
        """A claim to the place of a silent holder; None while it is to be seen whether it lives."""
        match self._watch.look(row.holder, self._context.clock.monotonic_ms()):
            case HolderVerdict.HOLDER_IS_SILENT:
                return Claim(incarnations=own.incarnations, marker_epoch=own.marker_epoch, silent=row.holder)
            case HolderVerdict.HOLDER_STAYS:
                raise InvalidConfig(
                    f"broker {row.broker_id} runs at {_whereabouts(row)}, with another data folder than "
                    f"{self._context.data.root}: no two processes may have one number. Start this one with a "
                    "--broker-id that is free; or, if it is to replace the other one, stop that one first, and see "
                    "that nothing starts it again"
                )
            case HolderVerdict.GOES_ON:
                return None

    # The list

    def _read(self) -> Sequence[UUID]:
        data = read_whole(self._context.files, self._path, max_bytes=MAX_FILE_BYTES)
        try:
            return [UUID(each) for each in json.loads(data or b"{}")["incarnations"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            return ()  # None yet, or damaged: the number's holder is waited for.

    def _write(self, incarnations: Sequence[UUID]) -> None:
        data = json.dumps({"version": 1, "incarnations": [str(each) for each in incarnations]}).encode()
        try:
            replace_file(self._context.files, self._path, data, durable=True)
        except OSError as error:
            log.warning("%s cannot be written (%s): the next start may wait for a session", self._path, error)


def _whereabouts(row: BrokerRow) -> str:
    return host_and_port(row.host, row.port)
