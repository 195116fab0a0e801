"""Bugs to plant in transactions: each breaks one of X1 to X7, or what T1 says of open transactions.

Owns the list alone, as `tests.simulation.bugs` does for everything else.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from tests.simulation.bugs import Mutant, Patches
from tests.simulation.plan import TRANSACTIONAL
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.transactions import PartitionTransactions
from tiered.broker.tiering import tier_plan
from tiered.broker.transactions.coordinator import TransactionCoordinator
from tiered.broker.transactions.marker_sender import MarkerSender
from tiered.broker.transactions.verification import Verifications
from tiered.cold.bucket import uploader
from tiered.errors import TieredError
from tiered.hot.lookup import Lookup
from tiered.meta import group_offsets, transaction_offsets, transactions
from tiered.read_replica.replica import BucketReader
from tiered.rules.partition import producer_state
from tiered.rules.partition.open_transactions import OpenTransactions
from tiered.rules.segments import tiering
from tiered.rules.transactions import transaction_state
from tiered.rules.transactions.transaction_state import TransactionState

_running: set[asyncio.Task[None]] = set()


def _run(work: Coroutine[Any, Any, Any]) -> None:
    """Beside everything else; nobody learns how it went."""

    async def quietly() -> None:
        try:
            await work
        except TieredError:
            pass

    task = asyncio.ensure_future(quietly())
    _running.add(task)
    task.add_done_callback(_running.discard)


def _decides_offsets_apart() -> Patches:
    plain = TransactionCoordinator._carry_out

    def carry_out(self: Any, decided: Any) -> None:
        plain(self, decided)
        commits = decided.state is TransactionState.PREPARE_COMMIT
        committed, aborted = ([decided.producer_id], []) if commits else ([], [decided.producer_id])
        decide = transaction_offsets.decide
        _run(self._commits.in_turn(lambda conn, by: decide(conn, committed=committed, aborted=aborted)))

    return [
        (transactions, "_decide_offsets", lambda conn, transitions: None),
        (TransactionCoordinator, "_carry_out", carry_out),
    ]


def _sends_markers_before_the_decision() -> Patches:
    plain = TransactionCoordinator._store

    async def store(self: Any, before: Any, after: Any, **given: Any) -> Any:
        if after.state.is_decided:
            self._carry_out(after)
        return await plain(self, before, after, **given)

    return [(TransactionCoordinator, "_store", store)]


def _fences_without_raising_the_epoch() -> Patches:
    def fenced(now: Any, *, now_ms: int, keeps_claim: bool = False) -> Any:
        return replace(now, state=TransactionState.PREPARE_ABORT, changed_at_ms=now_ms)

    def initialized(now: Any, claimed: Any, **given: Any) -> Any:
        found = plain(now, claimed, **given)
        if now is None or found.ends_open or found.after.producer_id != now.producer_id:
            return found
        return replace(found, after=replace(found.after, producer_epoch=now.producer_epoch))

    plain = transaction_state.initialized
    return [(transaction_state, "fenced", fenced), (transaction_state, "initialized", initialized)]


def _verifies_nothing() -> Patches:
    async def outcomes(self: Any, transactional_id: str, producer: Any, partitions: Any, adds: bool) -> Any:
        return dict.fromkeys(partitions)

    return [(Verifications, "_outcomes", outcomes)]


def _gives_markers_up() -> Patches:
    def again(self: Any, delivery: Any, partitions: Any, why: Any) -> None:
        delivery.left.difference_update(partitions)

    return [(MarkerSender, "_again", again)]


def _times_out_what_is_decided() -> Patches:
    def is_timed_out(now: Any, now_ms: int) -> bool:
        return now.started_at_ms is not None and now_ms - now.started_at_ms > now.timeout_ms

    def fenced(now: Any, *, now_ms: int, keeps_claim: bool = False) -> Any:
        epoch = min(now.producer_epoch + 1, transaction_state.MAX_PRODUCER_EPOCH)
        return replace(now, state=TransactionState.PREPARE_ABORT, producer_epoch=epoch, changed_at_ms=now_ms)

    return [(transaction_state, "is_timed_out", is_timed_out), (transaction_state, "fenced", fenced)]


def _shows_waiting_offsets() -> Patches:
    return [(transaction_offsets, "pend", lambda conn, commits, by: group_offsets.write(conn, commits, (), by))]


def _counts_markers_before_they_are_committed() -> Patches:
    plain = PartitionTransactions.last_stable_offset

    def last_stable_offset(self: Any, high_watermark: int, log_start_offset: int) -> int:
        while self._ended:
            del self._unstable[self._ended.popleft()[1]]
        return plain(self, high_watermark, log_start_offset)

    return [(PartitionTransactions, "last_stable_offset", last_stable_offset)]


def _forgets_open_transactions_at_a_start() -> Patches:
    plain = OpenTransactions.__init__
    return [(OpenTransactions, "__init__", lambda self, entries=(): plain(self))]


def _forgets_what_ended_before_a_start() -> Patches:
    plain = PartitionTransactions.begin_anew

    def begin_anew(self: Any, entries: Any, *, end_offset: int, stable_offset: int) -> None:
        plain(self, entries, end_offset=0, stable_offset=stable_offset)

    return [(PartitionTransactions, "begin_anew", begin_anew)]


def _uploads_open_transactions() -> Patches:
    plain = tiering.next_uploads

    def next_uploads(found: Any, **bounds: Any) -> Any:
        return plain(found, **{**bounds, "last_stable_offset": bounds["high_watermark"]})

    return [(tier_plan, "next_uploads", next_uploads)]


def _leaves_aborted_out_of_objects() -> Patches:
    plain = uploader.describe
    return [(uploader, "describe", lambda *args, **given: plain(*args, **{**given, "aborted": ()}))]


def _leaves_aborted_out_of_replicas() -> Patches:
    plain = BucketReader._in_store

    async def in_store(self: Any, *args: Any) -> Any:
        found = await plain(self, *args)
        return None if found is None else replace(found, aborted=())

    return [(BucketReader, "_in_store", in_store)]


def _appends_markers_of_any_coordinator() -> Patches:
    plain = producer_state.must_append_marker

    def must_append_marker(entry: Any, marker: Any, producer: Any, *, raises_epoch: bool) -> bool:
        now = None if entry is None else entry._replace(coordinator_epoch=-1)
        return plain(now, marker, producer, raises_epoch=raises_epoch)

    return [(producer_state, "must_append_marker", must_append_marker)]


def _appends_markers_of_any_epoch() -> Patches:
    plain = producer_state.must_append_marker

    def must_append_marker(entry: Any, marker: Any, producer: Any, *, raises_epoch: bool) -> bool:
        latest = replace(producer, producer_epoch=transaction_state.MAX_PRODUCER_EPOCH)
        return plain(entry, marker, latest, raises_epoch=raises_epoch)

    return [(producer_state, "must_append_marker", must_append_marker)]


def _answers_before_sql() -> Patches:
    async def store(self: Any, before: Any, after: Any, **given: Any) -> Any:
        if after is before or not after.state.is_decided:
            return await plain(self, before, after, **given)
        _run(plain(self, before, after, **given))
        return after

    plain = TransactionCoordinator._store
    return [(TransactionCoordinator, "_store", store)]


def _waits_for_deleted_topics() -> Patches:
    return [(MarkerSender, "_was_deleted", lambda self, partition, known_at: False)]


def _answers_a_persons_abort_before_sql() -> Patches:
    plain = TransactionCoordinator.abort

    async def abort(self: Any, transactional_id: str) -> None:
        _run(plain(self, transactional_id))

    return [(TransactionCoordinator, "abort", abort)]


def _commits_together_in_parts() -> Patches:
    plain = TransactionCoordinator.decide_together

    async def decide_together(self: Any, prepared: Any, *, commit_key: str | None) -> bool:
        return all([await plain(self, [each], commit_key=f"{commit_key}/{each.transactional_id}") for each in prepared])

    return [(TransactionCoordinator, "decide_together", decide_together)]


MUTANTS = (
    Mutant(
        name="decision_and_offsets_apart",
        breaks="X1: the decision is one SQL transaction, and the offsets move in the next one",
        patches=_decides_offsets_apart,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="waiting_offsets_visible",
        breaks="X1: offsets that wait for their transaction are the group's at once",
        patches=_shows_waiting_offsets,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="markers_given_up",
        breaks="X1, X4: a partition whose leader does not answer at once gets no marker",
        patches=_gives_markers_up,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="aborted_not_told",
        breaks="X1: an answer to a read_committed Fetch does not name what was aborted",
        patches=lambda: [(Lookup, "aborted_in", lambda self, segments, part, offset, end_offset: [])],
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="aborted_not_in_objects",
        breaks="X1, X6: an object does not name the aborted transactions that it has records of",
        patches=_leaves_aborted_out_of_objects,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="answers_before_sql",
        breaks="X2: EndTxn is answered before SQL has the decision",
        patches=_answers_before_sql,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="deleted_topics_waited_for",
        breaks="X4: a transaction does not end before partitions that were deleted have their markers",
        patches=_waits_for_deleted_topics,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="abort_before_sql",
        breaks="X2: a person is told of an abort before SQL has the decision",
        patches=_answers_a_persons_abort_before_sql,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="aborted_not_told_by_replicas",
        breaks="X6: a read replica does not name what was aborted",
        patches=_leaves_aborted_out_of_replicas,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="together_in_parts",
        breaks="X1: transactions that are committed together are decided one after the other",
        patches=_commits_together_in_parts,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="commit_keys_forgotten",
        breaks="X1: a batch that was written again is committed under its key once more",
        patches=lambda: [(transactions, "_is_new_key", lambda conn, commit_key, now_ms: True)],
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="decided_times_out",
        breaks="X2: a time-out aborts what was prepared to commit",
        patches=_times_out_what_is_decided,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="fenced_without_epoch",
        breaks="X3: whoever fences a producer ends what it has open, and does not raise its epoch",
        patches=_fences_without_raising_the_epoch,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="offsets_unchecked",
        breaks="X3, X5: offsets are taken with a transaction that is not open, or is another producer's",
        patches=lambda: [(transaction_offsets, "_not_ongoing", lambda conn, commits: {})],
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="verification_skipped",
        breaks="X4: records are appended without their coordinator's word",
        patches=_verifies_nothing,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="stable_is_committed",
        breaks="X4: the last stable offset is the high watermark",
        patches=lambda: [(Partition, "last_stable_offset", property(lambda self: self.high_watermark))],
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="markers_count_at_once",
        breaks="X4: a transaction has ended as soon as its marker is appended, before that is committed",
        patches=_counts_markers_before_they_are_committed,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="open_forgotten_at_start",
        breaks="X4: a log that is opened forgets which transactions are open in it",
        patches=_forgets_open_transactions_at_a_start,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="ended_forgotten_at_start",
        breaks="X4: a log that is opened takes the markers at its end for committed",
        patches=_forgets_what_ended_before_a_start,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="uploads_open_transactions",
        breaks="T1: segments with open transactions are uploaded",
        patches=_uploads_open_transactions,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="markers_before_decision",
        breaks="X7: markers are sent before the decision stands in SQL",
        patches=_sends_markers_before_the_decision,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="marker_coordinators_unchecked",
        breaks="X7: a leader appends markers of a coordinator that has been replaced",
        patches=_appends_markers_of_any_coordinator,
        plan=TRANSACTIONAL,
    ),
    Mutant(
        name="marker_epochs_unchecked",
        breaks="X7: a leader appends markers of transactions before the open one",
        patches=_appends_markers_of_any_epoch,
        plan=TRANSACTIONAL,
    ),
)
