"""The producers with an id of one partition: what each wrote last, and which of its batches were refused for now.

A producer has up to five batches on their way. When the first is refused because the disk is full, the others must be
refused for the same reason: told that they are out of order, librdkafka takes a new epoch and sends again what it has
under way, to every partition, where some of it may stand already.

Owns that memory. Must never keep a batch out that is its producer's next one.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from tiered.errors import OutOfOrderSequence, TieredError
from tiered.formats.control_record import TransactionMarker
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.rules.partition import producer_state

KEPT_MS = 120_000
"""As long as producers try by default (`delivery.timeout.ms`). One that gave a batch up has another epoch anyway."""
MOST_PRODUCERS = 1_000


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    error: TieredError
    at_ms: int


class Producers:
    """Of one partition, those that were silent longest first."""

    def __init__(self, entries: dict[int, ProducerEntry]) -> None:
        self.entries = entries
        """The log holds on to this very dictionary."""
        self._seen_ms: dict[int, int] = {}
        self._refused: dict[int, _Refused] = {}
        """By producer, the first batch that was refused and has not come again with success."""

    def __len__(self) -> int:
        return len(self.entries)

    def verdict(self, header: BatchHeader, now_ms: int) -> producer_state.Accept | producer_state.Duplicate:
        """As `producer_state.check`; what comes behind a batch that was refused is refused with that one's error."""
        entry = self.entries.get(header.producer_id)
        if not self._refused:
            return producer_state.check(entry, header)
        ahead = self._ahead_of(header, now_ms)
        try:
            verdict = producer_state.check(entry, header)
        except OutOfOrderSequence as error:
            raise error if ahead is None else ahead from None
        if ahead is not None and entry is None:
            raise ahead  # Nothing is known of the producer, and so anything would be its next batch.
        return verdict

    def note(self, header: BatchHeader, base_offset: int, now_ms: int, marker: TransactionMarker | None = None) -> None:
        """The batch is in the log: its producer goes on. `marker` is what it says if it ends a transaction."""
        # At the end, so that the order is that of their last batches.
        producer_id = header.producer_id
        entry = self.entries.pop(producer_id, None)
        self.entries[producer_id] = producer_state.apply(entry, header, base_offset, marker)
        self._seen_ms[producer_id] = now_ms
        if self._refused:
            self._refused.pop(producer_id, None)

    def refused(self, header: BatchHeader, error: TieredError, now_ms: int) -> None:
        """The batch was refused with a retriable `error`, and nothing of it was appended."""
        self._refused.pop(header.producer_id, None)
        self._refused[header.producer_id] = _Refused(header.producer_epoch, header.base_sequence, error, now_ms)
        if len(self._refused) > MOST_PRODUCERS:
            del self._refused[next(iter(self._refused))]

    def _ahead_of(self, header: BatchHeader, now_ms: int) -> TieredError | None:
        """Why another batch of this producer and epoch has to come first; None when none does."""
        found = self._refused.get(header.producer_id)
        if found is None or found.producer_epoch != header.producer_epoch:
            return None
        if found.base_sequence == header.base_sequence or not 0 <= now_ms - found.at_ms < KEPT_MS:
            return None
        return type(found.error)(f"a batch before this one was refused: {found.error}")

    def replace(self, producers: Sequence[ProducerEntry]) -> None:
        """The log was cut, or begins anew: these are all that there are at its end."""
        self.entries.clear()
        self.entries.update({entry.producer_id: entry for entry in producers})

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets idempotent producers that have not written for `expiration_ms`.

        By this broker's clock: Kafka goes by the records' own times, and so forgets a producer that replays
        old records while it writes. A producer known from before the start counts from the first look on.
        """
        seen = self._seen_ms
        for producer_id, entry in list(self.entries.items()):
            since_ms = seen.setdefault(producer_id, now_ms)
            if producer_state.is_expired(entry, last_append_ms=since_ms, now_ms=now_ms, expiration_ms=expiration_ms):
                del self.entries[producer_id]
                del seen[producer_id]

    def forget(self, most: int) -> int:
        """Forgets those that have been silent for longest, until `most` are left, but none with an open transaction:
        how many those were."""
        silent = (key for key, entry in self.entries.items() if entry.current_transaction_first_offset is None)
        surplus = list(islice(silent, max(0, len(self.entries) - most)))
        for producer_id in surplus:
            del self.entries[producer_id]
            self._seen_ms.pop(producer_id, None)
        return len(surplus)
