"""What became of each transaction: by SQL, by the markers in each partition, and by what its producer was told.

Owns X1 to X5 and X7, each checked at the moment at which it could be broken. An attempt has one fate, and whatever
speaks of it must say the same. Must never look at time, nor change anything.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.simulation.books import Book, Violation
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.ids import TopicPartition
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch, Transaction, TransactionState


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"


class SentOffsets(NamedTuple):
    """A group's position before a transaction and after it: the inputs that it has worked off."""

    group_id: str
    first: int
    end: int


@dataclass(eq=False, slots=True)
class Attempt:
    """One transaction, as its producer knows it."""

    number: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    batches: dict[int, TopicPartition] = field(default_factory=dict)
    """Where each was sent, by CRC."""
    offsets: SentOffsets | None = None
    asks_commit: bool = False
    together: "Together | None" = None
    """Those that are to be committed in one step with it."""
    is_superseded: bool = False
    """InitProducerId has answered a later producer since, and until then nothing was decided."""
    fate: Fate | None = None
    evidence: str = ""

    def __str__(self) -> str:
        producer = self.producer
        return (
            f"transaction {self.number} of {self.transactional_id} ({producer.producer_id}/{producer.producer_epoch})"
        )


@dataclass(eq=False, slots=True)
class Together:
    """Transactions of several producers that are to be committed in one step, once under a key."""

    key: str
    attempts: list[Attempt]

    def __str__(self) -> str:
        return f"{self.key} ({', '.join(str(each.number) for each in self.attempts)})"


@dataclass(eq=False, slots=True)
class Span:
    """A transaction's place in one partition, as its batches and its marker say."""

    attempt: Attempt
    offsets: list[int] = field(default_factory=list)
    """Of its batches."""
    marker_offset: int | None = None

    @property
    def first_offset(self) -> int:
        return self.offsets[0]


class TransactionBook:
    """One run's. Raises Violation."""

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        """By the CRC of each of their batches."""
        self.all: list[Attempt] = []
        self.markers: dict[int, tuple[int, int, TransactionMarker]] = {}
        """Producer id, epoch and what it says, by CRC."""
        self.positions: dict[str, int] = {}
        """How far each group's committed transactions have come."""
        self._together: dict[str, Together] = {}
        """What was committed under each key."""
        self._spans: dict[TopicPartition, list[Span]] = defaultdict(list)
        self._open: dict[TopicPartition, dict[int, Span]] = defaultdict(dict)
        self._placed: set[tuple[TopicPartition, int]] = set()
        self._current: dict[tuple[str, ProducerIdAndEpoch], Attempt] = {}
        self._reported: dict[TopicPartition, tuple[int, int]] = {}

    # Producers

    def begin(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Attempt:
        attempt = Attempt(len(self.all), transactional_id, producer)
        self.all.append(attempt)
        self._current[transactional_id, producer] = attempt
        return attempt

    def told(self, attempt: Attempt, *, commits: bool) -> None:
        """EndTxn was answered (X2)."""
        if commits and attempt.fate is None:
            raise Violation(f"X2: {attempt}: its producer was told of a commit that nobody has decided")
        self._decide(attempt, commits, "EndTxn was answered", rule="X2")

    def initialized(self, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
        """InitProducerId was answered: of older epochs nothing is decided from here on but aborts (X3)."""
        for attempt in self.all:
            if attempt.transactional_id != transactional_id or attempt.fate is not None:
                continue
            before = attempt.producer
            if before.producer_id == producer.producer_id and before.producer_epoch < producer.producer_epoch:
                attempt.is_superseded = True

    def told_together(self, together: Together, *, commits: bool) -> None:
        """Whoever wanted them committed was told that they are, or that others are under their key (X2)."""
        committed = self._together.get(together.key)
        if committed is None or (commits and committed is not together):
            raise Violation(f"X2: {together}: a commit under the key was answered, and {committed} is committed")
        for attempt in together.attempts:
            if attempt.fate is None:
                raise Violation(f"X2: {attempt} is open, and the commit of {together} was answered")

    def open_attempt(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Attempt | None:
        """The one of a producer of which SQL says that it is open."""
        return self._current.get((transactional_id, producer))

    def told_of_abort(self, attempt: Attempt) -> None:
        """A person was told that it is open no more (X2)."""
        if attempt.fate is None:
            raise Violation(f"X2: {attempt} is open, and its abort was answered")

    # SQL

    def decided(self, changes: Sequence[tuple[Transaction, Transaction]]) -> None:
        """SQL has these decisions in one step, or will have them in a moment: each before and after."""
        attempts = [self._decided(before, after) for before, after in changes]
        for attempt in attempts:
            together = attempt.together
            if together is None or attempt.fate is not Fate.COMMITTED:
                continue
            if not all(each in attempts and each.fate is Fate.COMMITTED for each in together.attempts):
                raise Violation(f"X1: {attempt} is committed without the others of {together}")
            committed = self._together.setdefault(together.key, together)
            if committed is not together:
                raise Violation(f"X1: {together} is committed, and {committed} was under the same key")

    def _decided(self, before: Transaction, after: Transaction) -> Attempt:
        producer = ProducerIdAndEpoch(before.producer_id, before.producer_epoch)
        attempt = self._current.get((before.transactional_id, producer))
        if attempt is None:
            raise Violation(f"{before.transactional_id}: nobody ever began what is decided for {producer}")
        commits = after.state is TransactionState.PREPARE_COMMIT
        self._decide(attempt, commits, "SQL decides", rule="X1")
        if commits and attempt.is_superseded:
            raise Violation(f"X3: {attempt} is committed after InitProducerId has answered a later producer")
        if commits and attempt.offsets is not None:
            group_id, first, end = attempt.offsets
            position = self.positions.get(group_id, 0)
            if position != first:
                raise Violation(
                    f"X5: {attempt} has worked off the inputs {first} to {end} of {group_id}, which is at {position}"
                )
            self.positions[group_id] = end
        return attempt

    def check_position(self, group_id: str, stored: int) -> None:
        """In a SQL transaction that is about to be committed."""
        expected = self.positions.get(group_id, 0)
        if stored != expected:
            raise Violation(
                f"X1: the offset of {group_id} in SQL is {stored}, and its committed transactions end at {expected}"
            )

    # Partitions

    def committed(self, book: Book, offset: int, crc: int) -> bool:
        """The ledger has this batch now; False when it is of no transaction."""
        attempt = self.attempts.get(crc)
        if attempt is not None:
            self._batch(book, offset, crc, attempt)
            return True
        found = self.markers.get(crc)
        if found is None:
            return False
        self._marker(book, offset, *found)
        return True

    def _batch(self, book: Book, offset: int, crc: int, attempt: Attempt) -> None:
        if (book.key, crc) in self._placed:
            raise Violation(f"duplicate: {book.name}: a batch of {attempt} at offset {offset} is there already")
        self._placed.add((book.key, crc))
        producer_id = attempt.producer.producer_id
        span = self._open[book.key].get(producer_id)
        if span is None:
            ended = next((each for each in self._spans[book.key] if each.attempt is attempt), None)
            if ended is not None:
                raise Violation(
                    f"X7: {book.name}: {attempt} has a batch at offset {offset}, and its marker is at "
                    f"{ended.marker_offset}"
                )
            span = self._open[book.key][producer_id] = Span(attempt)
            self._spans[book.key].append(span)
        elif span.attempt is not attempt:
            raise Violation(
                f"X7: {book.name}: {attempt} goes on at offset {offset} with what is open of {span.attempt}"
            )
        span.offsets.append(offset)

    def _marker(
        self, book: Book, offset: int, producer_id: int, producer_epoch: int, marker: TransactionMarker
    ) -> None:
        span = self._open[book.key].pop(producer_id, None)
        if span is None:
            return
        attempt = span.attempt
        span.marker_offset = offset
        commits = marker.type is MarkerType.COMMIT
        if attempt.fate is None:
            raise Violation(f"X7: {book.name}: {attempt} is ended at offset {offset}, and nobody has decided that")
        self._decide(attempt, commits, f"{book.name} has its marker at {offset}", rule="X7")
        if producer_epoch - attempt.producer.producer_epoch not in (0, 1):
            raise Violation(f"X7: {book.name}: {attempt} is ended at {offset} by a marker of epoch {producer_epoch}")

    def stable_offset(self, key: TopicPartition, high_watermark: int, *, stored: int = 0) -> int:
        """The first offset from `stored` on, and below the high watermark, of a transaction whose marker is not."""
        return min(
            (
                offset
                for span in self._spans[key]
                if span.marker_offset is None or span.marker_offset >= high_watermark
                for offset in span.offsets
                if stored <= offset < high_watermark
            ),
            default=high_watermark,
        )

    def check_stable(self, book: Book, machine: str, high_watermark: int, last_stable_offset: int) -> None:
        """A replica has a last stable offset (X4)."""
        # What is in the store was below the last stable offset: its transactions have ended, wherever the markers are.
        # A copy that begins there does not know of them before it has one of their later records.
        stored = 0 if book.row is None else book.row.cold_end_offset
        allowed = min(high_watermark, max(stored, self.stable_offset(book.key, high_watermark, stored=stored)))
        if last_stable_offset > allowed:
            raise Violation(
                f"X4: {book.name}: the last stable offset of {machine} is {last_stable_offset}, and a transaction is "
                f"open since {allowed}"
            )

    # Readers

    def was_reported(self, book: Book, leader_epoch: int, last_stable_offset: int) -> None:
        """A client that goes by leader epochs was told how far it may read (X4)."""
        epoch, before = self._reported.get(book.key, (-1, -1))
        if leader_epoch < epoch:
            return
        if last_stable_offset < before:
            raise Violation(
                f"X4: {book.name}: the last stable offset was reported as {before} in leader epoch {epoch} and then as "
                f"{last_stable_offset} in {leader_epoch}"
            )
        self._reported[book.key] = leader_epoch, last_stable_offset

    def was_read(self, book: Book, offset: int, crc: int, *, is_given: bool) -> None:
        """A read_committed reader was given this batch, or has passed over it as aborted."""
        attempt = self.attempts.get(crc)
        if attempt is None:
            if not is_given:
                raise Violation(f"X1: {book.name}: a reader passes over offset {offset}, which is of no transaction")
            return
        span = next(each for each in self._spans[book.key] if each.attempt is attempt)
        if span.marker_offset is None:
            raise Violation(f"X4: {book.name}: a reader is at offset {offset}, which is of {attempt}: that has no end")
        if is_given is not (attempt.fate is Fate.COMMITTED):
            what = "is given" if is_given else "passes over"
            raise Violation(f"X1: {book.name}: a reader {what} offset {offset}, and {attempt} is {attempt.fate}")

    # The end

    def check_ended(self, deleted: Collection[TopicPartition]) -> None:
        """After healing: what was committed is whole, and everything has ended, but in partitions that were deleted."""
        ended = {(key, span.attempt) for key, spans in self._spans.items() for span in spans}
        for key, spans in self._open.items():
            for span in spans.values() if key not in deleted else ():
                raise Violation(f"X4: {key}: {span.attempt} is open since offset {span.first_offset} for ever")
        for attempt in self.all:
            if attempt.fate is not Fate.COMMITTED:
                continue
            for crc, key in attempt.batches.items():
                if key not in deleted and ((key, crc) not in self._placed or (key, attempt) not in ended):
                    raise Violation(f"X1: {attempt} is committed, and a batch that {key} had acknowledged is not there")

    def _decide(self, attempt: Attempt, commits: bool, evidence: str, *, rule: str) -> None:
        fate = Fate.COMMITTED if commits else Fate.ABORTED
        if commits and not attempt.asks_commit:
            raise Violation(f"{rule}: {attempt} is committed, which nobody has asked for: {evidence}")
        if attempt.fate is None:
            attempt.fate, attempt.evidence = fate, evidence
        elif attempt.fate is not fate:
            raise Violation(
                f"{rule}: {attempt} is {fate.value}: {evidence}; it was {attempt.fate.value}: {attempt.evidence}"
            )
