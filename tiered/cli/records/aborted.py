"""Which batches of one partition belong to transactions that were aborted: they are not shown as committed.

Owns that decision alone, for batches that come in the order of their offsets.
"""

from collections.abc import Iterable

from tiered.formats.record_batch import BatchHeader
from tiered.wire.fetch import AbortedTransaction


class AbortedState:
    """What one fetch said of aborted transactions; made anew for each."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        self._aborted: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        """True for a batch of records whose transaction was aborted. A marker ends its producer's transaction."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._aborted.add(self._waiting.pop().producer_id)
        if header.is_control:
            # A commit marker can be that of an earlier transaction only when the abort has not begun yet.
            self._aborted.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborted
