"""The one writer of group rows: gathers commits of all groups, and writes them in one transaction after another.

Owns the queue, and the knowledge that a COMMIT's answer is missing. Must never have two transactions under way:
their order is the order of commits. Must never decide who may commit.

A transaction that failed, or whose outcome is unknown, fails its commits with `CoordinatorNotAvailable`: their
clients commit again, under a higher commit number. After an unknown outcome the slots are taken again before
anything else is read or written, which waits for the old transaction and ends its right to write.

In a slot that it has just got, nothing is written before its last holder has stopped answering from memory (R12).
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError

from tiered.broker.context import BrokerContext
from tiered.broker.groups.checkpoints import GroupCheckpointWriter
from tiered.broker.groups.offset_memory import OffsetMemory
from tiered.broker.groups.offsets_topic import OffsetsTopic
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.groups.stored_members import Encode
from tiered.errors import (
    CoordinatorNotAvailable,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    NotCoordinator,
    Throttled,
    TieredError,
)
from tiered.meta import coordinator_slots, group_offsets, groups, transaction_offsets
from tiered.meta.coordinator_slots import Moved, SlotRow
from tiered.meta.group_offsets import GroupCommit, WriteOutcome, WritingCoordinator
from tiered.meta.groups import GroupRow
from tiered.rules.groups.remembered_offsets import successor_waits_ms
from tiered.runtime import QuietFailures, Worker

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_BATCH_ENTRIES = 5_000
MAX_ENCODING_MS = 100.0
"""Of groups' members for one batch. Commits wait for that, and share the transaction and its deadline."""
ENCODED_BYTES_A_MS = 256
"""Of members, on the whole: after so many bytes a pause begins. That is a tenth of what one thread could make. Not the
time that it took: a busy machine would store a small group's members late, and a kill takes what is not stored."""
MAX_WAITING_ENTRIES = 100_000
MAX_WAITING_CHARS = 32 << 20
"""Of metadata, which clients may fill as they like."""
LINGER_MS = 2.0
DEADLINE_MS = 5_000
"""Kafka's `offsets.commit.timeout.ms`."""
RETRY_MS = 1_000.0
LAST_WORDS_MS = 5_000
INDIGESTIBLE = (DataError, IntegrityError, ValueError)
"""Errors of SQL about a value that no retry will make it take."""


@dataclass(eq=False, slots=True, kw_only=True)
class _WaitingState:
    """A commit on its way to SQL."""

    commit: GroupCommit
    done: "asyncio.Future[None]"
    chars: int = field(init=False)

    def __post_init__(self) -> None:
        self.chars = sum(len(entry.metadata) for entry in self.commit.entries)
        self.done.add_done_callback(retrieve)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueGroup:
    """A group's row on its way to SQL. Members are encoded when it is written, and not when it changes."""

    row: GroupRow
    encode_members: Encode | None

    def encoded(self) -> GroupRow:
        """Takes long where there are many members."""
        return self.row if self.encode_members is None else replace(self.row, members=self.encode_members())


class OffsetCommits:
    """Between `start` and `stop` one task writes; `submit`, `exclusively` and `settled` are for many callers."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        memory: OffsetMemory,
        group_checkpoints: GroupCheckpointWriter,
        offsets_topic: OffsetsTopic,
        slots_learned: Callable[[Iterable[SlotRow]], None],
        slots: HeldSlots,
    ) -> None:
        self._context = context
        self._memory = memory
        self._group_checkpoints = group_checkpoints
        self._offsets_topic = offsets_topic
        self._slots_learned = slots_learned
        self._slots = slots
        self._turn = asyncio.Lock()
        self._something = asyncio.Event()
        self._waiting: deque[_WaitingState] = deque()
        self._waiting_entries = 0
        self._waiting_chars = 0
        self._last: dict[str, asyncio.Future[None]] = {}
        self._changed: dict[str, DueGroup] = {}
        self._being_written: Mapping[str, DueGroup] = {}
        self._in_pause = False
        """Nothing is encoded: see ENCODED_BYTES_A_MS."""
        self._commit_number = 0
        self._gained_ms = -math.inf
        """When a slot came last, by the monotonic clock."""
        self._worker = Worker()
        self._stopped = False
        self._last_were_several = False
        """The last transaction wrote more than one commit or group."""
        self._one_by_one = False
        """SQL could not digest something of a batch: what it was shows when each is written alone."""
        self._tries_again = False
        """It is on its way: each try that fails asks for the next one, and more of them would never become fewer."""
        self._failures = QuietFailures(
            log, "the states of groups are not stored yet: %(error)s", "the states of groups are stored again"
        )
        self.outcome_unknown = False
        """A transaction may still be committed: the slots have to be taken again first."""

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._worker.start(tasks, self._write_for_ever())

    async def stop(self) -> None:
        """Writes what waits, if SQL does it at once; what is left fails with NotCoordinator."""
        self._stopped = True
        await self._worker.stop()
        try:
            async with asyncio.timeout(LAST_WORDS_MS / 1000.0), self._turn:
                while self._waiting or self._changed:
                    try:
                        await self._write_batch(at_once=True)
                    except INDIGESTIBLE:
                        log.exception("at shutdown: something of groups' state cannot be stored")
        except TimeoutError:
            log.warning("at shutdown: SQL did not take %d groups' state in time", len(self._changed))
        except TieredError as error:
            log.warning("at shutdown: %s", error)
        self.slots_lost({waiting.commit.slot for waiting in self._waiting})

    def slots_gained(self) -> None:
        """Some slots are this broker's since a moment ago. One that has its catalogue for itself has no predecessor but
        processes that are gone, or were silent for much longer than they answer from memory."""
        if not self._context.is_alone:
            self._gained_ms = self._context.clock.monotonic_ms()

    def slots_lost(self, slots: Collection[int]) -> None:
        """Writes nothing more for them: waiting commits get NotCoordinator. SQL decides about a write under way."""
        self._changed = _of_others(self._changed, slots)
        self._being_written = _of_others(self._being_written, slots)
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if each.commit.slot not in slots:
                self._waiting.append(each)
                continue
            self._waiting_entries -= len(each.commit.entries)
            self._waiting_chars -= each.chars
            fail(each.done, NotCoordinator("the group has another coordinator now: find it again"))

    async def hand_over(self) -> Moved:
        """Other brokers coordinate this one's groups from now on, if there are any; what waited is written.

        Raises CoordinatorNotAvailable.
        """
        async with self._turn:
            await self._write_what_waits(at_once=True)
            await self._settle()
            return await self._run(
                lambda conn: coordinator_slots.hand_over(
                    conn,
                    broker_id=self._context.broker_id,
                    broker_epoch=self._context.state.broker_epoch,
                    slot_count=self._context.settings.groups.offsets_topic_num_partitions,
                    now_ms=self._context.clock.now_ms(),
                )
            )

    # What callers do

    def submit(self, commit: GroupCommit) -> "asyncio.Future[None]":
        """Done once the offsets are stored; the commit has its place among the others at once.

        Nobody may cancel the future: who can be cancelled shields it. Raises CoordinatorNotAvailable when too much
        waits, and NotCoordinator; the future CoordinatorNotAvailable (SQL is away), NotCoordinator or
        IllegalGeneration, and that of a PendingCommit what `transaction_offsets.pend` refuses one with.
        """
        if self._stopped:
            raise NotCoordinator("the broker is stopping: find the group's coordinator again")
        waiting = _WaitingState(commit=commit, done=asyncio.get_running_loop().create_future())
        if self._waiting and (
            self._waiting_entries + len(commit.entries) > MAX_WAITING_ENTRIES
            or self._waiting_chars + waiting.chars > MAX_WAITING_CHARS
        ):
            raise CoordinatorNotAvailable("too many offset commits wait for SQL; try again later")
        self._waiting.append(waiting)
        self._waiting_entries += len(commit.entries)
        self._waiting_chars += waiting.chars
        self._last[commit.group_id] = waiting.done
        waiting.done.add_done_callback(lambda done: self._forget_last(commit.group_id, done))
        self._something.set()
        return waiting.done

    def changed(self, group: GroupRow, encode_members: Encode | None = None) -> None:
        """The group's row is due, with these members: it is written with the next batch (after a pause, where encoding
        members took long), and again until SQL takes it."""
        self._changed[group.group_id] = DueGroup(row=group, encode_members=encode_members)
        self._something.set()

    def due(self, group_id: str) -> DueGroup | None:
        """The group's row where SQL does not have it yet, for all this broker knows."""
        return self._changed.get(group_id) or self._being_written.get(group_id)

    async def remove_group(self, slot: int, group_id: str, *, check: Callable[[], None] | None = None) -> None:
        """Deletes the group, its offsets, and what was due of it, unless `check` raises at the last moment.

        Raises CoordinatorNotAvailable or NotCoordinator.
        """
        due: DueGroup | None = None

        def look() -> None:
            nonlocal due
            if check is not None:
                check()
            due = self._changed.get(group_id)

        await self.exclusively([slot], lambda conn: groups.remove(conn, group_id), check=look)
        if self._changed.get(group_id) is due:
            self._changed.pop(group_id, None)

    async def settled(self, group_id: str) -> None:
        """Returns when every commit of the group before now is stored, or never will be.

        Raises CoordinatorNotAvailable while that cannot be told.
        """
        last = self._last.get(group_id)
        if last is not None:
            await asyncio.wait([last])
        if self.outcome_unknown:
            async with self._turn:
                await self._settle()

    async def exclusively(
        self, slots: Collection[int], change: Callable[[Connection], T], *, check: Callable[[], None] | None = None
    ) -> T:
        """The result of `change(conn)`, which runs after every commit before now and before every later one.

        It runs in one transaction that holds the slots. `check` is called when nothing is waited for any more: it
        decides by what is true then, and may raise. Raises CoordinatorNotAvailable or NotCoordinator.
        """
        async with self._turn:
            # A group's row that is still due would bring back what `change` deletes; for those in their pause, see
            # `remove_group`.
            await self._write_what_waits()
            await self._settle()
            await self._predecessors_are_silent()
            if check is not None:
                check()
            by = self._coordinator()
            self._memory.changing(None)

            def fenced(conn: Connection) -> T:
                group_offsets.require_slots(conn, slots, by)
                return change(conn)

            value = await self._run(fenced)
            self._slots_changed(slots)
            return value

    async def in_turn(self, change: Callable[[Connection, WritingCoordinator], T]) -> T:
        """The result of `change(conn, by)`, which runs in a transaction of its own while no other of this writer does.

        `change` locks the slots that it writes for, beside others. Commits that wait may be written before or after it.
        Raises CoordinatorNotAvailable, after which it may have happened, and what `change` raises.
        """
        async with self._turn:
            await self._settle()
            by = self._coordinator()
            value = await self._run(lambda conn: change(conn, by))
            if isinstance(value, WriteOutcome):
                self._note_stale_epochs(value)
            return value

    async def read(self, look: Callable[[Connection], T]) -> T:
        """The result of `look(conn)`, which must not write: beside what is being written, and without waiting for it.

        What it finds can be changed by no write whose outcome was unknown before. Raises CoordinatorNotAvailable.
        """
        if self.outcome_unknown:
            async with self._turn:
                await self._settle()
        try:
            return await self._context.database.run(look, deadline_ms=DEADLINE_MS)
        except (MetadataUnavailable, Throttled) as error:
            raise CoordinatorNotAvailable(str(error)) from error

    # The writer

    async def _write_for_ever(self) -> None:
        while True:
            await self._something.wait()
            linger_ms = self._linger_ms()
            if linger_ms:  # Commits that come in these milliseconds share the transaction.
                await asyncio.sleep(linger_ms / 1000.0)
            # Before the turn: transitions of transactions change only offsets that nobody remembers, and need not wait.
            await self._predecessors_are_silent()
            async with self._turn:
                try:
                    await self._write_batch()
                except TieredError as error:
                    self._failures.failed(error)
                except Exception:
                    # A tick boundary: one commit that SQL cannot digest must not end all others.
                    log.exception("a batch of offset commits failed in an unforeseen way")

    def _linger_ms(self) -> float:
        linger_ms = self._context.settings.groups.tiered_offset_commit_linger_ms
        if linger_ms >= 0:
            return linger_ms
        # Where the last one was alone, nobody else is likely to come, and whoever commits waits for nothing.
        return LINGER_MS if self._last_were_several else 0

    async def _write_what_waits(self, *, at_once: bool = False) -> None:
        """Returns when all commits before now are written, and groups' states (those in their pause only `at_once`).
        Needs the turn."""
        last = self._waiting[-1].done if self._waiting else None
        due = [each for each in self._changed.values() if at_once or each.encode_members is None]
        while (last is not None and not last.done()) or any(
            self._changed.get(each.row.group_id) is each for each in due
        ):
            await self._write_batch(at_once=at_once)

    async def _write_batch(self, *, at_once: bool = False) -> None:
        """Writes one batch and answers its commits. Needs the turn. Raises what groups' states met."""
        unsettled: TieredError | None = None
        try:
            await self._settle()
        except TieredError as error:
            unsettled = error
        await self._predecessors_are_silent()
        # Slots may be lost as long as something is awaited: what is taken now is written under today's epochs.
        batch, changed = self._take_batch(at_once=at_once)
        if not batch and not changed:
            return
        self._being_written = changed
        self._last_were_several = len(batch) + len(changed) > 1
        by = self._coordinator()
        commits = [waiting.commit for waiting in batch]
        try:
            if unsettled is not None:
                raise unsettled
            rows = await self._encoded(changed)
            self._memory.changing({each.group_id for each in commits})
            written = await self._run(lambda conn: transaction_offsets.write(conn, commits, rows, by))
        except TieredError as error:
            self._give_back(self._being_written)
            for waiting in batch:
                fail(waiting.done, error)
            if not batch:
                raise
        except BaseException as error:
            indigestible = isinstance(error, INDIGESTIBLE)
            self._one_by_one = indigestible and len(batch) + len(changed) > 1
            if self._one_by_one or not indigestible:
                self._give_back(self._being_written)
            for waiting in batch:
                fail(waiting.done, CoordinatorNotAvailable("the commit was interrupted; commit again"))
            raise
        else:
            self._failures.worked()
            self._note_stale_epochs(written)
            for number, waiting in enumerate(batch):
                error_of_one = written.refused.get(number)
                if error_of_one is not None:
                    fail(waiting.done, error_of_one)
                elif not waiting.done.done():
                    waiting.done.set_result(None)
            self._slots_changed({*(each.slot for each in commits), *(each.slot for each in rows)})
        finally:
            self._being_written = {}

    async def _encoded(self, changed: Mapping[str, DueGroup]) -> list[GroupRow]:
        """The rows, with their members where these are encoded in time; the others are due again. Begins a pause."""
        rows = [each.row for each in changed.values() if each.encode_members is None]
        if len(rows) == len(changed):
            return rows
        clock = self._context.clock
        began_ms = clock.monotonic_ms()

        def encode() -> Iterator[GroupRow]:
            for each in changed.values():
                if each.encode_members is not None:
                    yield each.encoded()
                    if clock.monotonic_ms() - began_ms > MAX_ENCODING_MS:
                        return

        rows += await asyncio.to_thread(lambda: list(encode()))
        self._in_pause = True
        size_bytes = sum(len(each.members or b"") for each in rows)
        asyncio.get_running_loop().call_later(size_bytes / ENCODED_BYTES_A_MS / 1000.0, self._end_pause)
        taken = {each.group_id for each in rows}
        late = {group_id: each for group_id, each in self._being_written.items() if group_id not in taken}
        self._changed = {**late, **self._changed}
        return rows

    def _end_pause(self) -> None:
        self._in_pause = False
        self._something.set()

    def _take_batch(self, *, at_once: bool) -> tuple[list[_WaitingState], dict[str, DueGroup]]:
        changed: dict[str, DueGroup] = {}
        in_pause = self._in_pause and not at_once
        if self._one_by_one and self._changed:
            changed = dict([self._changed.popitem()])
            batch = []
        else:
            batch = self._take_commits(1 if self._one_by_one else MAX_BATCH_ENTRIES)
            # A group's new generation ends the right of the commits before it: they go first.
            if not self._waiting:
                changed = self._take_changed(in_pause=in_pause)
        if not self._waiting and (not self._changed or (in_pause and not self._one_by_one)):
            self._something.clear()
            self._one_by_one = False
        return batch, changed

    def _take_commits(self, most_entries: int) -> list[_WaitingState]:
        """The first ones, with so many entries together; one in any case."""
        batch: list[_WaitingState] = []
        entries = 0
        while self._waiting and (not batch or entries + len(self._waiting[0].commit.entries) <= most_entries):
            waiting = self._waiting.popleft()
            batch.append(waiting)
            entries += len(waiting.commit.entries)
            self._waiting_chars -= waiting.chars
        self._waiting_entries -= entries
        return batch

    def _take_changed(self, *, in_pause: bool) -> dict[str, DueGroup]:
        """All groups; in a pause, those without members."""
        taken = {
            group_id: each for group_id, each in self._changed.items() if each.encode_members is None or not in_pause
        }
        self._changed = {group_id: each for group_id, each in self._changed.items() if group_id not in taken}
        return taken

    def _give_back(self, changed: Mapping[str, DueGroup]) -> None:
        """They are written with the next commits, or else after a while."""
        self._changed = {**changed, **self._changed}
        if self._changed and not self._tries_again:
            self._tries_again = True
            asyncio.get_running_loop().call_later(RETRY_MS / 1000.0, self._try_again)

    def _try_again(self) -> None:
        self._tries_again = False
        self._something.set()

    async def _settle(self) -> None:
        """Makes sure that no older transaction can still be committed. Needs the turn."""
        if not self.outcome_unknown:
            return
        rows = await self._run(
            lambda conn: coordinator_slots.retake_own(
                conn, broker_id=self._context.broker_id, broker_epoch=self._context.state.broker_epoch
            )
        )
        self.outcome_unknown = False
        self._memory.settled()
        self._slots_learned(rows)
        log.info("settled an unknown outcome: the group slots were taken again")

    async def _predecessors_are_silent(self) -> None:
        """Returns when nobody answers from memory any more for a slot that this broker has."""
        clock = self._context.clock
        while wait_ms := successor_waits_ms(gained_ms=self._gained_ms, now_ms=clock.monotonic_ms()):
            await asyncio.sleep(wait_ms / 1000.0)

    async def _run(self, change: Callable[[Connection], T]) -> T:
        """One transaction. Raises CoordinatorNotAvailable, and notes whether it may have been committed."""
        unknown = True
        try:
            value = await self._context.database.run(change, deadline_ms=DEADLINE_MS)
            unknown = False
        except MetadataOutcomeUnknown as error:
            raise CoordinatorNotAvailable(str(error)) from error
        except (MetadataUnavailable, Throttled) as error:
            unknown = False
            raise CoordinatorNotAvailable(str(error)) from error
        except CoordinatorNotAvailable:
            raise  # the slots have an epoch that this broker does not know: they are taken again
        except TieredError:
            unknown = False
            raise
        finally:
            # Also where this task was cancelled: the call goes on without it.
            self.outcome_unknown = self.outcome_unknown or unknown
            if not self.outcome_unknown:
                self._memory.settled()
        return value

    def _note_stale_epochs(self, outcome: WriteOutcome) -> None:
        """This broker holds a slot under an epoch that it does not know: the slots are taken again."""
        stale = any(isinstance(error, CoordinatorNotAvailable) for error in outcome.refused.values())
        self.outcome_unknown = self.outcome_unknown or stale

    def _slots_changed(self, slots: Collection[int]) -> None:
        self._group_checkpoints.slots_changed(slots)
        self._offsets_topic.slots_changed(slots)

    def _coordinator(self) -> WritingCoordinator:
        """The registration and epochs under which the next batch is written."""
        self._commit_number += 1
        return WritingCoordinator(
            broker_id=self._context.broker_id,
            broker_epoch=self._context.state.broker_epoch,
            slot_epochs=self._slots.epochs,
            commit_number=self._commit_number,
        )

    def _forget_last(self, group_id: str, done: "asyncio.Future[None]") -> None:
        if self._last.get(group_id) is done:
            del self._last[group_id]


def _of_others(due: Mapping[str, DueGroup], slots: Collection[int]) -> dict[str, DueGroup]:
    return {group_id: each for group_id, each in due.items() if each.row.slot not in slots}


def fail(done: "asyncio.Future[None]", error: TieredError) -> None:
    """The waiter hears of the error, unless it has its answer or went away."""
    if not done.done():
        # Each waiter raises an error of its own: a shared one would gather all of their tracebacks.
        done.set_exception(type(error)(*error.args))


def retrieve(done: "asyncio.Future[None]") -> None:
    """If the waiter went away, its error is not reported as a bug."""
    if not done.cancelled():
        done.exception()
