"""Which leader epoch wrote which offsets of a log (KIP-101, KIP-320).

Owns the table's arithmetic as an immutable value. Never persists it: the log does, before a recovery point covers
an epoch's batches.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

NO_EPOCH = -1
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """Entries `(leader_epoch, start_offset)`; epochs rise strictly, start offsets never fall.

    Two epochs may start at one offset: the earlier one wrote no record that is still here. It is kept,
    so that a question about it has an exact answer.
    """

    entries: tuple[tuple[int, int], ...] = field(default=())

    def __post_init__(self) -> None:
        previous_epoch, previous_start = NO_EPOCH, 0
        for epoch, start in self.entries:
            assert epoch > previous_epoch, f"leader epochs out of order: {self.entries}"
            assert start >= previous_start, f"start offsets out of order: {self.entries}"
            previous_epoch, previous_start = epoch, start

    @property
    def latest(self) -> int:
        """The newest epoch, or -1 when there is none."""
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> "LeaderEpochs":
        """The table after `epoch` began at `start_offset`; the same object when nothing changes.

        Entries that contradict the new one (an equal or later epoch, or a later start) were written by
        a leader whose records are gone: they are dropped. An epoch that is already the newest keeps its
        start, unless the new start is lower.
        """
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        if self.entries:
            latest_epoch, latest_start = self.entries[-1]
            if latest_epoch == epoch and latest_start <= start_offset:
                return self
        kept = self.entries
        while kept and (kept[-1][0] >= epoch or kept[-1][1] > start_offset):
            kept = kept[:-1]
        return LeaderEpochs((*kept, (epoch, start_offset)))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The answer to OffsetForLeaderEpoch: the largest known epoch up to `epoch`, and where it ends (exclusive).

        The newest epoch ends at `log_end_offset`. An epoch before the first known one is answered with
        itself and the start of the first. `(-1, -1)` when the table is empty or `epoch` is negative.
        """
        if epoch < 0 or not self.entries:
            return NO_EPOCH, NO_OFFSET
        index = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if index == len(self.entries):
            return self.entries[-1][0], log_end_offset
        if index == 0:
            return epoch, self.entries[0][1]
        return self.entries[index - 1][0], self.entries[index][1]

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset` (or would, at the log's end); -1 when it is before the first entry."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[index - 1][0] if index else NO_EPOCH

    def start_of(self, epoch: int) -> int:
        """Where the epoch begins; -1 when it is not in the table."""
        index = bisect_right(self.entries, epoch, key=lambda entry: entry[0]) - 1
        return self.entries[index][1] if index >= 0 and self.entries[index][0] == epoch else NO_OFFSET

    def covering(self, base_offset: int, end_offset: int) -> tuple[tuple[int, int], ...]:
        """The entries that have records in `[base_offset, end_offset)`, the first one's start raised to the base."""
        found: list[tuple[int, int]] = []
        for index, (epoch, start) in enumerate(self.entries):
            end = self.entries[index + 1][1] if index + 1 < len(self.entries) else end_offset
            first = max(start, base_offset)
            if first < min(end, end_offset):
                found.append((epoch, first))
        return tuple(found)

    def continued_by(self, entries: tuple[tuple[int, int], ...]) -> "LeaderEpochs":
        """This table up to where `entries` begin, then `entries`: they are newer and right where both speak.

        The first of them may be known here with its true start, where `entries` only say from when on it is
        known there.
        """
        if not entries:
            return self
        first_epoch, first_start = entries[0]
        earlier = tuple(entry for entry in self.entries if entry[0] <= first_epoch and entry[1] <= first_start)
        if earlier and earlier[-1][0] == first_epoch:
            return LeaderEpochs((*earlier, *entries[1:]))
        return LeaderEpochs((*earlier, *entries))

    def truncate_to_end(self, offset: int) -> "LeaderEpochs":
        """The table of a log cut to end at `offset`: epochs that start at or after it are gone."""
        index = len(self.entries)
        while index and self.entries[index - 1][1] >= offset:
            index -= 1
        return self if index == len(self.entries) else LeaderEpochs(self.entries[:index])

    def truncate_to_start(self, offset: int) -> "LeaderEpochs":
        """The table of a log that now begins at `offset`: the epoch in force there starts there, older ones go."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        if index == 0 or (index == 1 and self.entries[0][1] == offset):
            return self
        return LeaderEpochs(((self.entries[index - 1][0], offset), *self.entries[index:]))
