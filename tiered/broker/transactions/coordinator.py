"""The coordinator of transactions: who has a transactional id, what is open, and how it ends.

Owns the transactions of the slots that this broker holds, as SQL has them. What is here is a cache: a transition counts
once SQL has it, and where nobody knows whether it does, the row is read again. That all markers are written is the one
that SQL may hear of later: whoever reads the decision there writes them again, to no effect. Must never write a marker
before the decision stands in SQL, nor let time decide anything but when an abort is tried (R11).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

from tiered.account import OwnersDays, OwnersTurns
from tiered.broker.context import BrokerContext
from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.groups.values import check_transactional_id
from tiered.broker.host.producer_ids import ProducerIds
from tiered.broker.one_by_one import AWAY, OneByOne
from tiered.broker.transactions.expiry import remove_expired
from tiered.broker.transactions.listing import listed
from tiered.broker.transactions.marker_sender import MarkerSender
from tiered.broker.transactions.producer_clients import ProducerClients
from tiered.broker.transactions.transactional_id import not_found
from tiered.broker.transactions.transition_writer import TransitionWriter
from tiered.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotCoordinator,
    TieredError,
)
from tiered.ids import TopicPartition
from tiered.meta import transactions
from tiered.meta.transactions import TransactionChange
from tiered.rules.security.authorization import NameScope
from tiered.rules.transactions import transaction_state
from tiered.rules.transactions.transaction_state import (
    PreparedTransaction,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from tiered.runtime import QuietFailures, Worker, every, in_turns

log = logging.getLogger(__name__)

MAX_COORDINATOR_EPOCH = 2**31 - 1
ABORTED_AT_ONCE = 500
MAX_TOLD = 20
"""Transactions that the log names at a time, of those that timed out; the others are counted."""
COMPLETED_AT_ONCE = 1_000
MAX_TOGETHER = 5_000
READ_AT_ONCE = 1_000
MAX_KEY_BYTES = 2000
"""Of a commit of several transactions: what an index entry of PostgreSQL holds, whatever is in it."""
MAX_READS = 2
"""At a time, of transactional ids that are not in memory, or do not exist: SQL has few connections, and decisions wait
for one."""
LOOK_MS = 1_000.0
RETRY_MS = 1_000.0
ENDING_MS = 100.0
"""A producer's next request waits so long for the markers of its last transaction. Clients that are told to come back
do so after 20 ms or 100, which is longer than most ends take."""
COMPLETE_AFTER_MS = 100.0
"""So long a row waits for the producer's next transaction, to be written with its beginning, once every partition has
its marker. A producer that goes on at once has two transitions written for each transaction instead of three."""
# Ids that nobody uses are dropped from memory when they were found so twice.
FORGET_INTERVAL_MS = 60_000


@dataclass(slots=True)
class _TurnState:
    """Requests for one transactional id, one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asking: int = 0
    tenure: int = -1
    """That of the slot when the one under way was given the transaction: what it decides counts in no other."""
    completed: asyncio.Event = field(default_factory=asyncio.Event)
    """For those that wait until the last transaction has ended everywhere."""


class TransactionCoordinator:
    """Between `start` and `stop` its requests may be made; `slots_changed` says for whom."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        slots: HeldSlots,
        slot_of: Callable[[str], int],
        is_ours: Callable[[str], bool],
        commits: OffsetCommits,
        producer_ids: ProducerIds,
        markers: MarkerSender,
    ) -> None:
        self._context = context
        self._slots = slots
        self._slot_of = slot_of
        self._is_ours = is_ours
        self._commits = commits
        self._producer_ids = producer_ids
        self._markers = markers
        self._writer = TransitionWriter(commits=commits)
        self._known: dict[str, Transaction] = {}
        self._clients = ProducerClients()
        self._carried_out: dict[str, Transaction] = {}
        """By transactional id, what SQL still has of one that is known as complete: decided, with every marker there.
        Should it be read again, its markers are sent again, and change nothing."""
        self._completions = asyncio.Event()
        self._turns: dict[str, _TurnState] = {}
        self._idle: set[str] = set()
        self._list_turns = OwnersTurns()
        self._ends_ms: list[int] = []
        """When the transactions time out that were open at the last look."""
        self._new_ids = OwnersDays(
            "transactional ids",
            "tiered.max.new.transactional.ids.per.day",
            lambda: context.settings.transactions.tiered_max_new_transactional_ids_per_day,
            context.clock,
        )
        self._to_load: set[int] = set()
        """Slots whose open transactions have not been read yet."""
        self._unsure: set[str] = set()
        """Transactional ids whose last write has an unknown outcome."""
        self._loads = asyncio.Event()
        self._reads = asyncio.Semaphore(MAX_READS)
        self._worker = Worker()
        self._reading = OneByOne("reading transactional ids", counters=context.counters)
        self._failures = QuietFailures(
            log, "open transactions are not read yet: %(error)s", "open transactions are read"
        )
        self._looks = QuietFailures(
            log, "what others have decided is not looked for: %(error)s", "what others have decided is looked for"
        )
        markers.delivered = self._delivered

    def start(self, tasks: asyncio.TaskGroup) -> None:
        settings = self._context.state.settings.transactions
        self._writer.start(tasks)
        self._markers.start(tasks)
        for work in (
            self._load_for_ever(),
            self._complete_for_ever(),
            every(
                lambda: self._until_time_out_ms(settings.transaction_abort_timed_out_transaction_cleanup_interval_ms),
                self._abort_timed_out,
                name="aborting transactions that timed out",
            ),
            every(
                settings.transaction_remove_expired_transaction_cleanup_interval_ms,
                self._remove_expired,
                name="removing expired transactional ids",
                jitter=0.1,
            ),
            every(LOOK_MS, self._look_for_decided, name="looking for decided transactions"),
            every(FORGET_INTERVAL_MS, self._forget_idle, name="forgetting transactional ids"),
        ):
            self._worker.start(tasks, work)

    async def stop(self) -> None:
        """Whatever is open stays so, in SQL, for the next coordinator."""
        await self._worker.stop()
        await self._markers.stop()
        await self._writer.stop()

    def slots_changed(self, lost: Collection[int], gained: Collection[int]) -> None:
        """Other slots are this broker's now. What is open in those that came is read, and what is decided goes on."""
        if lost:
            gone = [name for name in self._known if self._slot_of(name) in lost]
            for name in gone:
                self._forget(name)
            self._markers.forget(gone)
        self._to_load.difference_update(lost)
        if gained:
            self._to_load.update(gained)
            self._loads.set()

    # What producers ask

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, claimed: ProducerIdAndEpoch | None = None, *, client: str = ""
    ) -> ProducerIdAndEpoch:
        """The producer that has the transactional id from now on; every other is fenced (KIP-98, KIP-360).

        An open transaction is aborted first. Raises ConcurrentTransactions while the last one is being ended, if that
        takes longer than ENDING_MS: Java's admin clients before 3.8 take this for a failure of `fenceProducers`
        (KAFKA-16570). Raises ProducerFenced, InvalidTransactionTimeout, InvalidRequest, NotCoordinator,
        CoordinatorNotAvailable, CoordinatorLoading, and Throttled for a new id of a client that has brought too many.
        """
        most_ms = self._context.state.settings.transactions.transaction_max_timeout_ms
        if not 0 < timeout_ms <= most_ms:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms={timeout_ms} is not in 1 to {most_ms} (transaction.max.timeout.ms there)"
            )
        for _ in ("to abort what is open", "to begin"):
            async with self._turn(transactional_id, waits=True) as now:
                if now is None:
                    self._new_ids.take()
                fresh = await self._fresh_producer_id(now)
                found = transaction_state.initialized(
                    now,
                    claimed,
                    transactional_id=transactional_id,
                    timeout_ms=timeout_ms,
                    fresh_producer_id=fresh,
                    now_ms=self._context.cluster_now_ms,
                )
                after = await self._store(now, found.after)
                if not found.ends_open:
                    self._clients.remember(transactional_id, client)
                    return ProducerIdAndEpoch(after.producer_id, after.producer_epoch)
        raise ConcurrentTransactions(f"the open transaction of {transactional_id} is being aborted; retry")

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        protocol: int,
    ) -> None:
        """The partitions are in the producer's transaction, which begins with the first.

        Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, NotCoordinator and
        CoordinatorNotAvailable.
        """
        async with self._turn(transactional_id, waits=True) as now:
            after = transaction_state.with_partitions(
                now, producer, frozenset(partitions), protocol=protocol, now_ms=self._context.cluster_now_ms
            )
            await self._store(now, after)

    def at_rest(self, transactional_id: str) -> Transaction | None:
        """The transaction as SQL has it, where that is known here and no request is about to change it."""
        if transactional_id in self._turns or not self._is_ours(transactional_id):
            return None
        return self._known.get(transactional_id)

    async def check_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, TieredError | None]:
        """Why the producer may not write to each of these partitions now; None where it may (KIP-890).

        Raises NotCoordinator, CoordinatorNotAvailable.
        """
        found: dict[TopicPartition, TieredError | None] = {}
        async with self._turn(transactional_id) as now:
            for partition in partitions:
                try:
                    transaction_state.check_partition(now, producer, partition)
                    found[partition] = None
                except TieredError as error:
                    found[partition] = error.without_frames()
        return found

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commits: bool, protocol: int
    ) -> ProducerIdAndEpoch:
        """What the producer goes on with, once the decision stands. Markers follow.

        Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, InvalidTransactionState,
        NotCoordinator, CoordinatorNotAvailable, CoordinatorLoading.
        """
        async with self._turn(transactional_id) as now:
            raises = protocol == transaction_state.RAISES_EPOCH
            fresh = await self._fresh_producer_id(now) if raises and now is not None else None
            ending = transaction_state.ended(
                now,
                producer,
                commits=commits,
                protocol=protocol,
                fresh_producer_id=fresh,
                now_ms=self._context.cluster_now_ms,
            )
            return (await self._store(ending.before, ending.after)).told

    async def decide_together(self, prepared: Sequence[PreparedTransaction], *, commit_key: str | None) -> bool:
        """Ends transactions of many producers in one SQL transaction, whoever coordinates them.

        Commits them under a key that was not used yet (True), otherwise aborts what is open of them (False). So whoever
        does not know whether it was done may do it again, with what it has, under the same key. Each producer must be
        initialized again afterwards. Raises InvalidRequest, what `end` raises where one of them cannot be committed
        (then none is), and CoordinatorNotAvailable.
        """
        if len(prepared) > MAX_TOGETHER or len({each.transactional_id for each in prepared}) < len(prepared):
            raise InvalidRequest(f"name up to {MAX_TOGETHER} transactional ids, each of them once")
        for each in prepared:
            check_transactional_id(each.transactional_id)
        if commit_key is not None and ("\0" in commit_key or len(commit_key.encode()) > MAX_KEY_BYTES):
            raise InvalidRequest(f"the key has at most {MAX_KEY_BYTES} bytes of UTF-8, and none of them is 0")
        now_ms = self._context.cluster_now_ms
        try:
            return await self._commits.in_turn(
                lambda conn, _: transactions.decide_together(conn, prepared, commit_key=commit_key, now_ms=now_ms)
            )
        finally:
            # What is coordinated elsewhere, or not known here yet, is seen within LOOK_MS.
            for each in prepared:
                if each.transactional_id in self._known:
                    self._read_again(each.transactional_id, soon=True)

    async def abort(self, transactional_id: str) -> None:
        """A person's word: the open transaction is aborted and its producer fenced. Nothing where SQL has none open.

        Raises TransactionalIdNotFound, NotCoordinator, CoordinatorNotAvailable.
        """
        async with self._turn(transactional_id) as now:
            if now is None:
                raise not_found(transactional_id)
            if now.state is TransactionState.ONGOING:
                await self._store(now, transaction_state.fenced(now, now_ms=self._context.cluster_now_ms))
                return
            stored = await self._load(transactional_id)
            if stored is not None and stored.state is TransactionState.ONGOING:
                raise NotCoordinator(f"another broker has begun a transaction of {transactional_id}; ask that one")

    # What people ask

    async def describe(self, transactional_id: str) -> Transaction:
        """Raises TransactionalIdNotFound, NotCoordinator, CoordinatorNotAvailable."""
        async with self._turn(transactional_id) as now:
            if now is None:
                raise not_found(transactional_id)
            return now

    def list_transactions(
        self,
        scope: NameScope,
        is_wanted: Callable[[Transaction], bool],
        *,
        open_only: bool = False,
        with_partitions: bool = False,
    ) -> AsyncIterator[Transaction]:
        """Those of this broker's slots, as `listing.listed` has them, one list of one asker at a time. Raises
        CoordinatorLoading, and Throttled where too many of them wait."""
        self._require_loaded()
        slots = tuple(self._slots.epochs)
        return self._list_turns.one(
            listed(
                self._context.database, slots, scope, is_wanted, open_only=open_only, with_partitions=with_partitions
            )
        )

    def open_transactions(self) -> list[Transaction]:
        """Those of this broker's slots that are open or being ended, by id, from memory. Raises CoordinatorLoading."""
        self._require_loaded()
        return [self._known[name] for name in sorted(self._known) if self._known[name].started_at_ms is not None]

    @property
    def open_count(self) -> int:
        """Transactions that are open or being ended here. For metrics."""
        return sum(each.started_at_ms is not None for each in self._known.values())

    @property
    def undelivered_count(self) -> int:
        """Markers of decided transactions that are still to be written. For metrics."""
        return self._markers.undelivered_count

    # One transactional id at a time

    @asynccontextmanager
    async def _turn(self, transactional_id: str, *, waits: bool = False) -> AsyncIterator[Transaction | None]:
        """The transaction as SQL has it, with no other request for the same id under way. `waits`: the last one has
        ended everywhere, unless that takes longer than ENDING_MS."""
        self._check_ours(transactional_id)
        turn = self._turns.setdefault(transactional_id, _TurnState())
        turn.asking += 1
        try:
            if waits:
                await self._wait_for_end(transactional_id, turn)
            async with turn.lock:
                self._check_ours(transactional_id)
                turn.tenure = self._tenure(transactional_id)
                yield self._known.get(transactional_id) or await self._load(transactional_id)
        finally:
            turn.asking -= 1
            if not turn.asking:
                del self._turns[transactional_id]

    async def _wait_for_end(self, transactional_id: str, turn: _TurnState) -> None:
        known = self._known.get(transactional_id)
        if known is None or not known.state.is_decided:
            return
        turn.completed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_MS / 1000.0):
                await turn.completed.wait()

    def _check_ours(self, transactional_id: str) -> None:
        check_transactional_id(transactional_id)
        if not self._is_ours(transactional_id):
            raise NotCoordinator(
                f"transactional id {transactional_id} is not coordinated here; find its coordinator again"
            )

    def _tenure(self, transactional_id: str) -> int:
        """That of its slot, which this broker holds: what is known of another one is forgotten."""
        tenure = self._slots.tenure(self._slot_of(transactional_id))
        assert tenure is not None
        return tenure

    async def _load(self, transactional_id: str) -> Transaction | None:
        slot = self._slot_of(transactional_id)
        tenure = self._slots.tenure(slot)
        await self._writer.settled(transactional_id)
        # No write of it is under way, and none begins in its turn: the writers of others are not waited for.
        async with self._reads:
            found = await self._commits.read(lambda conn: transactions.load(conn, transactional_id))
        if tenure is None or self._slots.tenure(slot) != tenure:
            raise CoordinatorLoading(f"{transactional_id} was coordinated elsewhere for a moment; ask again")
        if found is not None:
            self._learn(found)
        return found

    def _learn(self, found: Transaction) -> None:
        """What SQL has, as far as this broker did not know it."""
        known = self._known.setdefault(found.transactional_id, found)
        if known is found and found.state.is_decided:
            self._carry_out(found)

    async def _store(self, before: Transaction | None, after: Transaction, *, outcome: str = "aborted") -> Transaction:
        """`after`, once SQL has it. Where that is not known the row is read again by the next request. `outcome` is how
        a transaction is counted that is not committed."""
        if after is before:
            return after
        await self._write(before, after)
        if after.state.is_decided:
            commits = after.state is TransactionState.PREPARE_COMMIT
            self._context.counters.transactions["committed" if commits else outcome] += 1
            if self._known.get(after.transactional_id) is after:
                self._carry_out(after)
        return after

    async def _write(self, before: Transaction | None, after: Transaction) -> None:
        """SQL has `after`, and so has this broker if it still holds the slot. Raises what the writer does."""
        name = after.transactional_id
        slot = self._slot_of(name)
        tenure = self._turns[name].tenure
        stored = self._carried_out.pop(name, before)
        try:
            await self._writer.submit(TransactionChange(slot=slot, tenure=tenure, before=stored, after=after))
        except BaseException:
            self._read_again(name)
            raise
        if self._slots.tenure(slot) == tenure:
            self._known[name] = after
        else:
            self._read_again(name)  # It stands; whoever holds the slot now goes on with it, this broker if it is back.

    def _forget(self, transactional_id: str) -> None:
        """What SQL has counts."""
        self._known.pop(transactional_id, None)
        self._carried_out.pop(transactional_id, None)

    async def _fresh_producer_id(self, now: Transaction | None) -> int | None:
        return await self._producer_ids.next() if transaction_state.needs_producer_id(now) else None

    # Markers

    def _carry_out(self, decided: Transaction) -> None:
        slot = self._slot_of(decided.transactional_id)
        tenure, held_since = self._slots.tenure(slot), self._slots.held_since(slot)
        if tenure is not None and held_since is not None:
            self._markers.send(decided, coordinator_epoch=min(tenure, MAX_COORDINATOR_EPOCH), held_since=held_since)

    def _delivered(self, decided: Transaction) -> None:
        """Every partition has its marker: the transaction is complete, and the next one may begin."""
        name = decided.transactional_id
        if self._known.get(name) is not decided:
            return  # It is somebody else's now, or is read again.
        self._known[name] = transaction_state.completed(decided, now_ms=self._context.cluster_now_ms)
        self._carried_out[name] = decided
        self._completions.set()
        if name in self._turns:
            self._turns[name].completed.set()

    async def _complete_for_ever(self) -> None:
        """SQL hears of complete transactions, too, where no other follows soon."""
        while True:
            await self._completions.wait()
            due = dict(islice(self._carried_out.items(), COMPLETED_AT_ONCE))
            await asyncio.sleep(COMPLETE_AFTER_MS / 1000.0)
            async with asyncio.TaskGroup() as tasks:
                for name, decided in due.items():
                    if self._carried_out.get(name) is decided:
                        tasks.create_task(self._complete(name, decided))
            if not self._carried_out:
                self._completions.clear()

    async def _complete(self, transactional_id: str, decided: Transaction) -> None:
        with suppress(TieredError):  # Then it is read again.
            async with self._turn(transactional_id) as now:
                if now is not None and self._carried_out.get(transactional_id) is decided:
                    await self._write(now, now)

    # What is read without being asked for

    def _read_again(self, transactional_id: str, *, soon: bool = False) -> None:
        """Nobody knows what SQL has, and what is decided there must be carried out whoever asks."""
        self._forget(transactional_id)
        self._unsure.add(transactional_id)
        if soon:
            self._loads.set()
        else:
            asyncio.get_running_loop().call_later(RETRY_MS / 1000.0, self._loads.set)

    async def _look_for_decided(self) -> None:
        """Another broker may have decided transactions of many coordinators together.

        What was open is known here, is being asked for, or is read in any case: an id that nobody has used for a while
        can have nothing decided."""
        if not self._known and not self._turns:
            return
        slots = self._slots.epochs.keys() - self._to_load
        if not slots:
            return
        try:
            decided = await self._commits.in_turn(lambda conn, _: transactions.load_decided(conn, slots))
        except TieredError as error:
            self._looks.failed(error)
            return
        self._looks.worked()
        for each in decided:
            known = self._known.get(each.transactional_id)
            # What was decided elsewhere has a raised epoch. Anything else is this broker's own, from a moment ago.
            if known is None or (
                known.state is TransactionState.ONGOING
                and known.producer_id == each.producer_id
                and known.producer_epoch < each.producer_epoch
            ):
                self._read_again(each.transactional_id, soon=True)

    async def _load_for_ever(self) -> None:
        while True:
            await self._loads.wait()
            self._loads.clear()
            try:
                await self._load_open()
                await self._load_unsure()
            except Exception as error:  # noqa: BLE001 - a tick boundary: it is tried again
                self._failures.failed(error if isinstance(error, TieredError) else repr(error))
                await asyncio.sleep(RETRY_MS / 1000.0)
                self._loads.set()
            else:
                self._failures.worked()

    async def _load_open(self) -> None:
        """What is open in slots that came to this broker."""
        tenures = {slot: self._slots.tenure(slot) for slot in self._to_load}
        if not tenures:
            return
        found = await self._commits.in_turn(lambda conn, _: transactions.load_open(conn, tenures))
        same = {slot for slot, tenure in tenures.items() if tenure is not None and self._slots.tenure(slot) == tenure}
        for each in found:
            # What has a write on its way is read after it.
            if self._slot_of(each.transactional_id) in same and each.transactional_id not in self._unsure:
                self._learn(each)
        self._to_load -= same

    async def _load_unsure(self) -> None:
        unsure = tuple(self._unsure)
        for first in range(0, len(unsure), READ_AT_ONCE):
            try:
                await self._read_together(unsure[first : first + READ_AT_ONCE])
            except AWAY:
                raise
            except Exception:
                # One of them cannot be read: each is asked for by itself.
                log.exception("transactional ids could not be read together")
        failed = await self._reading.run(
            self._unsure.intersection(unsure), self._read_one, name="transactional id {}".format
        )
        if failed:
            raise CoordinatorNotAvailable(f"{failed} transactional ids cannot be read")

    async def _read_one(self, transactional_id: str) -> None:
        with suppress(NotCoordinator):  # It is read by whoever holds the slot.
            async with self._turn(transactional_id):
                pass
        self._unsure.discard(transactional_id)

    async def _read_together(self, names: Sequence[str]) -> None:
        """Those of which nothing is under way. Of the others what is read here may be old by now."""
        tenures = {name: self._slots.tenure(self._slot_of(name)) for name in names}
        found = await self._commits.in_turn(lambda conn, _: transactions.load_named(conn, names))
        for name, tenure in tenures.items():
            if name in self._turns or self._writer.has(name):
                continue
            self._unsure.discard(name)
            if tenure is None or self._slots.tenure(self._slot_of(name)) != tenure:
                continue  # It is read by whoever holds the slot.
            if self._carried_out.get(name, self._known.get(name)) != found.get(name):
                self._forget(name)
            if name in found:
                self._learn(found[name])

    async def _abort_timed_out(self) -> None:
        """All that are late, so many at a time: who leaves thousands open must not keep others' readers waiting longer.

        SQL decides whether they are still open: a commit that was decided meanwhile stays (R11)."""
        now_ms = self._context.cluster_now_ms
        late: list[str] = []
        ends_ms: list[int] = []
        async for transaction in in_turns(list(self._known.values())):
            end_ms = transaction_state.time_out_ms(transaction)
            if transaction_state.is_timed_out(transaction, now_ms):
                late.append(transaction.transactional_id)
            elif end_ms is not None:
                ends_ms.append(end_ms)
        self._ends_ms = ends_ms
        for first in range(0, len(late), ABORTED_AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                begun = [
                    tasks.create_task(self._abort_one(name, now_ms, is_told=number < MAX_TOLD))
                    for number, name in enumerate(late[first : first + ABORTED_AT_ONCE], first)
                ]
            failed = [error for abort in begun if (error := abort.result()) is not None]
            if failed:
                log.warning("%d transactions timed out, and are not aborted yet: %s", len(failed), failed[0])
            if len(failed) == len(begun):
                self._ends_ms.append(now_ms)
                return
        if len(late) > MAX_TOLD:
            log.info("%d more transactions were open for too long", len(late) - MAX_TOLD)

    async def _abort_one(self, transactional_id: str, now_ms: int, *, is_told: bool) -> TieredError | None:
        """Why it is not aborted, where that is so."""
        try:
            async with self._turn(transactional_id) as now:
                if now is not None and transaction_state.is_timed_out(now, now_ms):
                    if is_told:
                        log.info("%s", self._clients.timed_out(now, now_ms))
                    await self._store(now, transaction_state.fenced(now, now_ms=now_ms), outcome="timed_out")
        except TieredError as error:
            return error.without_frames()
        return None

    def _until_time_out_ms(self, most_ms: float) -> float:
        """A look at all of them takes its time, too."""
        now_ms = self._context.cluster_now_ms
        return transaction_state.until_time_out_ms(self._ends_ms, now_ms, least_ms=LOOK_MS, most_ms=most_ms)

    async def _remove_expired(self) -> None:
        settings = self._context.state.settings.transactions
        before_ms = self._context.cluster_now_ms - settings.transactional_id_expiration_ms
        try:
            await remove_expired(self._commits, self._slots, before_ms=before_ms, forget=self._forget)
        except TieredError as error:
            log.warning("expired transactional ids are not all removed, the rest later: %s", error)

    async def _forget_idle(self) -> None:
        def is_idle(name: str) -> bool:
            known = self._known.get(name)
            return known is not None and known.started_at_ms is None and name not in self._turns

        idle = {name async for name in in_turns(list(self._known)) if is_idle(name)}
        for name in filter(is_idle, idle & self._idle):
            self._forget(name)
        self._idle = idle - self._idle

    def _require_loaded(self) -> None:
        if self._to_load:
            raise CoordinatorLoading("the open transactions of this broker's slots are being read; ask again")
