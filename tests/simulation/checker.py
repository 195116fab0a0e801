"""Sees everything: every replica's log, every high watermark, every change in SQL, every answer to a client.

Owns the invariants R1 to R9 of the design, each checked at the moment at which it could be broken. It keeps one
ledger for each partition: what has ever been below a high watermark, which must never change again. Must never
look at time (R11), nor change anything.
"""

import json
import sqlite3
from uuid import UUID

from tests.simulation.books import Batch, Book, Entry, Replica, Row, Violation
from tests.simulation.loop import Process
from tests.simulation.transaction_book import TransactionBook
from tiered.broker.partitions.partition import Partition
from tiered.formats.control_record import TransactionMarker
from tiered.formats.record_batch import BatchHeader
from tiered.hot.log import Log
from tiered.ids import TopicPartition


class Checker:
    """One run's. Raises Violation out of whatever the run is doing."""

    def __init__(self, *, min_isr: int = 2) -> None:
        self.min_isr = min_isr
        self.books: dict[TopicPartition, Book] = {}
        self.batches: dict[int, Batch] = {}
        """By their CRC."""
        self.transactions = TransactionBook()
        self.lossy: set[str] = set()
        """Machines that have lost power or their disk, until they registered again: their copies may be short."""
        self.registrations: dict[int, tuple[int, bool]] = {}
        """The current broker epoch by broker id, and whether it is fenced, as SQL says."""
        self.alive: dict[str, int] = {}
        """The broker epoch with which the machine's present process serves."""
        self.elections = 0
        self.acknowledged = 0
        self.polled = 0
        self.truncations = 0
        self.isr_changes = 0
        self.database_forgot = False
        """What SQL says is older than what was done: rows no longer say who has what."""
        self.producer_ids: set[int] = set()
        self._change_number = -1
        self._seen: dict[Partition, tuple[int, int, bool]] = {}

    # Logs

    def registered(self, machine: str, broker_epoch: int) -> None:
        """The machine's process serves under this registration: from now on it must hold what its copies stand for."""
        self.alive[machine] = broker_epoch
        self.lossy.discard(machine)
        for book in self.books.values():
            self._check_members(book, f"{machine} has registered with epoch {broker_epoch}")

    def wiped(self, machine: str) -> None:
        for book in self.books.values():
            book.replicas.pop(machine, None)

    def book(self, key: TopicPartition) -> Book:
        found = self.books.get(key)
        if found is None:
            found = self.books[key] = Book(key)
        return found

    def replica_of(self, directory: str) -> tuple[Book, Replica]:
        """The copy in a directory `…/<machine>/log/<topic id>/<partition>`."""
        parts = directory.split("/")
        book = self.book(TopicPartition(UUID(parts[-2]), int(parts[-1])))  # type: ignore[arg-type]
        machine = parts[-4]
        replica = book.replicas.get(machine)
        if replica is None:
            replica = book.replicas[machine] = Replica(machine, directory)
        return book, replica

    def log_opened(self, log: Log) -> None:
        """A restart: the copy is what recovery has found."""
        from tiered.formats.record_batch import whole_batches

        book, replica = self.replica_of(log.directory)
        replica.start = log.segments[0].base_offset
        replica.entries = entries = []
        replica.verified = 0
        replica.has_failed = False
        for segment in log.segments:
            with open(segment.path, "rb") as file:
                data = file.read()[: segment.size_bytes]
            for _, header in whole_batches(data, 0, len(data)):
                entries.extend([(header.partition_leader_epoch, header.crc)] * (header.last_offset_delta + 1))
        self._check_members(book)

    def marker_appended(self, crc: int, header: BatchHeader, marker: TransactionMarker | None) -> None:
        """The end of a transaction is in somebody's log; more than one may have it."""
        if marker is not None:
            self.transactions.markers[crc] = header.producer_id, header.producer_epoch, marker

    def appended(self, log: Log, entries: list[Entry]) -> None:
        _, replica = self.replica_of(log.directory)
        replica.entries.extend(entries)
        if replica.end != log.log_end_offset:
            raise Violation(f"the log in {log.directory} ends at {log.log_end_offset}, the checker's at {replica.end}")

    def cut(self, log: Log) -> None:
        """The log was truncated, begun anew, or lost its beginning."""
        book, replica = self.replica_of(log.directory)
        if log.failed is not None:
            replica.has_failed = True
            return
        start, end = log.segments[0].base_offset, log.log_end_offset
        if start >= replica.end or start < replica.start:
            replica.entries, replica.start = [], start
        elif start > replica.start:
            del replica.entries[: start - replica.start]
            replica.start = start
        if end < replica.end:
            self.truncations += 1
            del replica.entries[end - start :]
        replica.verified = min(replica.verified, replica.end)
        self._check_members(book)

    # What a process does

    def look(self, process: Process, partitions: list[Partition]) -> None:
        """After each step of the process: have its high watermarks or roles changed?"""
        seen = self._seen
        for partition in partitions:
            now = (partition.high_watermark, partition.leader_epoch, partition.leadership is not None)
            before = seen.get(partition)
            if now == before:
                continue
            seen[partition] = now
            book = self.book(partition.topic_partition)
            replica = self.replica_of(partition.log.directory)[1]
            if now[2] and (before is None or now[1:] != before[1:]):
                self._leads(book, process.name, now[1])
                if replica.has_failed:
                    raise Violation(f"R7: {process.name} begins to lead {book.name} with a log that has failed")
                if not partition.is_withheld:  # Whoever asks now is told so.
                    self.was_reported(partition.topic_partition, now[1], now[0])
            if before is None or now[0] > before[0]:
                self._committed(book, replica, now[0], partition)
            if not replica.has_failed:
                self.transactions.check_stable(book, process.name, now[0], partition.last_stable_offset)

    def _leads(self, book: Book, machine: str, leader_epoch: int) -> None:
        known = book.leaders.setdefault(leader_epoch, machine)
        if known != machine:
            raise Violation(f"R1: {book.name} is led by {known} and by {machine} in leader epoch {leader_epoch}")

    def _committed(self, book: Book, replica: Replica, high_watermark: int, partition: Partition) -> None:
        """`replica` has moved its high watermark there."""
        who = f"{replica.machine} in leader epoch {partition.leader_epoch}"
        if high_watermark > replica.end:
            raise Violation(
                f"R4: {book.name}: {who} has a high watermark of {high_watermark} beyond its log's end {replica.end}"
            )
        ledger = book.ledger
        self._verify(book, replica, min(high_watermark, len(ledger)), f"R4: the high watermark of {who}")
        first = len(ledger)
        if high_watermark <= first:
            return
        if partition.leadership is None:
            raise Violation(
                f"R8: {book.name}: {who} follows, and has a high watermark of {high_watermark} that no "
                f"leader ever had: {first} is committed"
            )
        new = replica.between(first, high_watermark)
        if len(new) != high_watermark - first:
            raise Violation(f"R2: {book.name}: {who} commits from {first} on, and its log begins at {replica.start}")
        ledger.extend(new)
        replica.verified = high_watermark
        self._check_sequences(book, first, new)
        self._check_members(book, f"{who} has moved the high watermark to {high_watermark}")

    def _check_sequences(self, book: Book, first: int, new: list[Entry]) -> None:
        """Idempotent producers: each batch once, in their order."""
        previous = book.ledger[first - 1][1] if first else None
        for place, (_, crc) in enumerate(new):
            if crc == previous:
                continue
            previous = crc
            if self.transactions.committed(book, first + place, crc):
                continue
            batch = self.batches.get(crc)
            if batch is None:
                raise Violation(f"{book.name}: nobody ever sent the batch at offset {first + place}")
            if batch.producer < 0:
                continue  # acks=1, and not idempotent
            last = book.sequences.get(batch.producer, -1)
            if batch.sequence != last + 1:
                kind = "duplicate" if batch.sequence <= last else "reordered or lost"
                raise Violation(
                    f"{kind}: {book.name}: producer {batch.producer} has batch {batch.sequence} at offset "
                    f"{first + place}, after its batch {last}"
                )
            book.sequences[batch.producer] = batch.sequence

    def _verify(self, book: Book, replica: Replica, end: int, what: str) -> None:
        """That the copy agrees with what is committed, below `end`."""
        first = max(replica.verified, replica.start)
        if end <= first:
            return
        mine, committed = replica.between(first, end), book.ledger[first:end]
        if mine != committed:
            place = next(
                (index for index, pair in enumerate(zip(mine, committed, strict=False)) if pair[0] != pair[1]),
                len(mine),
            )
            found = mine[place] if place < len(mine) else "nothing"
            raise Violation(
                f"{what}: {book.name}: offset {first + place} is committed as {committed[place]} and {replica.machine} "
                f"has {found}"
            )
        replica.verified = end

    # Elections

    def sql_changed(self, driver: sqlite3.Connection) -> None:
        """A change was committed: R1, and whether everybody who can be elected holds everything (R2, R3, R7)."""
        for broker_id, epoch, fenced in driver.execute("SELECT broker_id, broker_epoch, fenced FROM broker"):
            self.registrations[broker_id] = epoch, bool(fenced)
        if self.database_forgot:
            return
        since = self._change_number
        rows = driver.execute(
            "SELECT topic_id, partition, leader, leader_epoch, partition_epoch, isr, log_start_offset, "
            "cold_end_offset, change_number FROM partition WHERE change_number > ?",
            (since,),
        ).fetchall()
        for topic_id, number, leader, leader_epoch, partition_epoch, isr, start, cold, change in rows:
            self._change_number = max(self._change_number, change)
            book = self.book(TopicPartition(UUID(topic_id), number))  # type: ignore[arg-type]
            if book.is_deleted:
                continue
            members = tuple((int(member[0]), int(member[1])) for member in json.loads(isr))
            before = book.row
            self._row_changed(book, Row(leader, leader_epoch, partition_epoch, members, start, cold))
            if before is not None and cold > before.cold_end_offset:
                self._check_uploader(book, driver, topic_id, number)
        for book in self.books.values():
            self._check_members(book, "after a change in SQL")

    def _check_uploader(self, book: Book, driver: sqlite3.Connection, topic_id: str, number: int) -> None:
        """Only the leader commits segments: a zombie must not."""
        row = book.row
        assert row is not None
        found = driver.execute(
            "SELECT owner FROM segment WHERE topic_id = ? AND partition = ? AND end_offset = ? "
            "AND committed_at_ms IS NOT NULL",
            (topic_id, number, row.cold_end_offset),
        ).fetchone()
        if found is None or found[0] != row.leader:
            raise Violation(
                f"T3: {book.name}: broker {found and found[0]} has committed a segment up to {row.cold_end_offset}, "
                f"and {row.leader} leads"
            )

    def _row_changed(self, book: Book, row: Row) -> None:
        before, book.row = book.row, row
        if before is not None:
            if row.leader_epoch < before.leader_epoch or row.partition_epoch < before.partition_epoch:
                raise Violation(f"R1: {book.name}: epochs went back in SQL from {before} to {row}")
            if row.leader != before.leader and row.leader_epoch == before.leader_epoch:
                raise Violation(f"R1: {book.name} has another leader in leader epoch {row.leader_epoch}")
            if row.isr != before.isr:
                self.isr_changes += 1
            if len(row.isr) < min(self.min_isr, len(before.isr)):
                raise Violation(f"rule 3: {book.name}: the ISR has shrunk from {before.isr} to {row.isr}")
            if row.log_start_offset < before.log_start_offset or row.cold_end_offset < before.cold_end_offset:
                raise Violation(f"{book.name}: offsets went back in SQL from {before} to {row}")
        if row.leader != -1 and (before is None or row.leader_epoch != before.leader_epoch):
            self.elections += 1
            self._leads(book, f"b{row.leader}", row.leader_epoch)
        if row.cold_end_offset > len(book.ledger):
            raise Violation(
                f"T1: {book.name}: {row.cold_end_offset} is in the store, and only {len(book.ledger)} is committed"
            )
        stable = self.transactions.stable_offset(book.key, len(book.ledger))
        if row.cold_end_offset > stable:
            raise Violation(
                f"T1: {book.name}: {row.cold_end_offset} is in the store, and a transaction is open since {stable}"
            )

    def _check_members(self, book: Book, why: str = "") -> None:
        """R2, R3, R7: whoever could be elected holds the committed prefix."""
        row = book.row
        if row is None or self.database_forgot:
            return
        end = len(book.ledger)
        for broker_id, epoch in row.isr:
            if self.registrations.get(broker_id, (-1, False))[0] != epoch:
                continue  # A placeholder
            machine = f"b{broker_id}"
            if self.alive.get(machine) != epoch and machine in self.lossy:
                continue  # Dead with loss: as it registers again it is known to be
            replica = book.replicas.get(machine)
            if replica is None:
                if end and row.cold_end_offset < end:
                    raise Violation(f"R2: {book.name}: {machine} can be elected and holds nothing; {why}")
                continue
            if replica.has_failed:
                continue
            if max(replica.start, row.log_start_offset) > max(row.cold_end_offset, row.log_start_offset):
                raise Violation(
                    f"R2: {book.name}: {machine} can be elected and its log begins at {replica.start}, where the "
                    f"store ends at {row.cold_end_offset}; {why}"
                )
            if replica.verified == end:
                continue
            if replica.end < end:
                raise Violation(
                    f"R2: {book.name}: {machine} can be elected (epoch {epoch}) and its log ends at {replica.end}, "
                    f"where {end} is committed; {why}"
                )
            self._verify(book, replica, end, f"R2: {machine} can be elected; {why}")

    def deletes(self, key: TopicPartition) -> None:
        """SQL is about to delete the partition's topic."""
        book = self.book(key)
        book.is_deleted, book.row = True, None

    # Clients

    def was_acknowledged(self, key: TopicPartition, crc: int, base_offset: int, count: int, leader_epoch: int) -> None:
        """A producer with acks=all was told so by the leader of that epoch (R5)."""
        book = self.book(key)
        self.acknowledged += count
        found = book.ledger[base_offset : base_offset + count]
        if len(found) != count:
            raise Violation(
                f"R5: {book.name}: offsets {base_offset} to {base_offset + count - 1} were acknowledged, and "
                f"{len(book.ledger)} is committed"
            )
        # Who was told that knows where the end is at least, from whoever leads in that epoch: the leader of an older
        # one, which may have written the records, may still tell others what it had committed (R9 is of one epoch's
        # clients).
        if leader_epoch >= book.reported[0] and base_offset + count > book.reported[1]:
            book.reported = leader_epoch, base_offset + count
        if any(entry[1] != crc for entry in found):
            raise Violation(f"R5: {book.name}: other records are committed at the acknowledged offset {base_offset}")

    def was_read(self, key: TopicPartition, base_offset: int, count: int, entry: Entry) -> None:
        """A consumer was given this batch (R6)."""
        book = self.book(key)
        self.polled += count
        found = book.ledger[base_offset : base_offset + count]
        if len(found) != count:
            raise Violation(
                f"R6: {book.name}: a consumer read offsets {base_offset} to {base_offset + count - 1}, and "
                f"{len(book.ledger)} is committed"
            )
        if any(each != entry for each in found):
            raise Violation(
                f"R6: {book.name}: a consumer read {entry} at offset {base_offset}, committed is {found[0]}"
            )

    def was_reported(self, key: TopicPartition, leader_epoch: int, high_watermark: int) -> None:
        """A client that goes by leader epochs was told where the partition ends (R9)."""
        book = self.book(key)
        epoch, before = book.reported
        if leader_epoch >= epoch:
            if high_watermark < before:
                raise Violation(
                    f"R9: {book.name}: the end was reported as {before} in leader epoch {epoch} and then as "
                    f"{high_watermark} in {leader_epoch}"
                )
            book.reported = leader_epoch, high_watermark

    # At the end

    def remembers(self, driver: sqlite3.Connection) -> None:
        """Nobody had seen what the database lost: its rows are as if that had never been."""
        self.database_forgot, self._change_number = False, -1
        for book in self.books.values():
            book.row = None
        self.sql_changed(driver)

    def was_given(self, producer_id: int) -> None:
        """A client has got a producer id (R10)."""
        if producer_id in self.producer_ids:
            raise Violation(f"R10: producer id {producer_id} was given out twice")
        self.producer_ids.add(producer_id)

    def check_kept(self) -> None:
        """Nobody serves on what is left of the database: the log that is furthest has all that was committed."""
        for book in self.books.values():
            whole = [each for each in book.replicas.values() if not each.has_failed]
            if not book.ledger or book.is_deleted:
                continue
            best = max(whole, key=lambda replica: replica.reach, default=None)
            if best is None or best.end < len(book.ledger):
                raise Violation(
                    f"R14: {book.name}: {len(book.ledger)} records are committed, and the best log of all, that of "
                    f"{best and best.machine}, ends at {best and best.end}"
                )
            self._verify(book, best, len(book.ledger), f"R14: the best log of all, that of {best.machine}")

    def check_converged(self, live: list[str]) -> None:
        """After healing: every copy is the same and holds all that was acknowledged."""
        for book in self.books.values():
            if book.row is None:
                continue
            for machine in live:
                replica = book.replicas.get(machine)
                if replica is None:
                    raise Violation(f"{book.name}: {machine} has no copy after healing")
                if replica.end != len(book.ledger):
                    raise Violation(
                        f"R4: {book.name}: after healing {machine} ends at {replica.end}, where {len(book.ledger)} is "
                        "committed"
                    )
                self._verify(book, replica, len(book.ledger), "R4: after healing")
