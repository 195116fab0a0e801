"""Which batches of idempotent producers one partition has refused for the time being.

A producer has up to five batches on their way. When the first is refused because the disk is full, the others must be
refused for the same reason: told that they are out of order, librdkafka takes a new epoch and sends again what it has
under way, to every partition, where some of it may stand already.

Owns that memory, and nothing of what was appended. Must never keep a batch out that is its producer's next one.
"""

from typing import NamedTuple

from tiered.errors import TieredError
from tiered.formats.record_batch import BatchHeader

KEPT_MS = 120_000
"""As long as producers try by default (`delivery.timeout.ms`). One that gave a batch up has another epoch anyway."""
MOST_PRODUCERS = 1_000


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    error: TieredError
    at_ms: int


class RefusedBatches:
    """By producer, the first batch that was refused and has not come again with success."""

    def __init__(self) -> None:
        self._by_producer: dict[int, _Refused] = {}

    def note(self, header: BatchHeader, error: TieredError, now_ms: int) -> None:
        """The batch was refused with a retriable `error`, and nothing of it was appended."""
        self._by_producer.pop(header.producer_id, None)
        self._by_producer[header.producer_id] = _Refused(header.producer_epoch, header.base_sequence, error, now_ms)
        if len(self._by_producer) > MOST_PRODUCERS:
            del self._by_producer[next(iter(self._by_producer))]

    def appended(self, producer_id: int) -> None:
        """A batch of the producer is in the log: it goes on."""
        self._by_producer.pop(producer_id, None)

    def ahead_of(self, header: BatchHeader, now_ms: int) -> TieredError | None:
        """Why another batch of this producer and epoch has to come first; None when none does."""
        found = self._by_producer.get(header.producer_id)
        if found is None or found.producer_epoch != header.producer_epoch:
            return None
        if found.base_sequence == header.base_sequence or not 0 <= now_ms - found.at_ms < KEPT_MS:
            return None
        return type(found.error)(f"a batch before this one was refused: {found.error}")
