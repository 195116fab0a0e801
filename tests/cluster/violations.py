"""The kinds of violation that a run can have, and the list of those that were found.

Owns the names in reports. Keeps the first of each kind with its words, and counts the rest.
"""

from collections import Counter
from enum import StrEnum

KEPT_OF_A_KIND = 20


class Violation(StrEnum):
    LOST = "lost"
    """Acknowledged, and not at its offset."""
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    TWO_VALUES = "two values at one offset"
    FAILED_APPEARS = "a write that failed for certain is there"
    STRAY = "a value that nobody sent"
    GAP = "gap"
    VANISHED_READ = "a read that vanished"
    NON_MONOTONIC_POLL = "non-monotonic poll"
    COMMIT_WENT_BACK = "committed offset went back"
    COMMIT_FROM_NOWHERE = "a committed offset that nobody committed"
    DIVERGENT = "divergent replicas"
    DAMAGED = "damaged bytes at rest"
    HOT_AND_COLD_DIFFER = "hot and cold bytes differ"
    CATALOGUE_HOLE = "hole in the catalogue"
    CATALOGUE_OVERLAP = "overlap in the catalogue"
    UNSEEN = "acknowledged but never polled"
    CONSUMER_ERROR = "an error that no consumer may see"
    HALF_A_TRANSACTION = "half a transaction"
    COMMIT_LOST = "an acknowledged commit that is not there"
    ABORTED_APPEARS = "an aborted record that was committed or read"
    INPUT_TWICE = "an input that was processed twice"
    INPUT_NEVER = "an input that was passed over"
    HANGING = "a transaction that never ended"
    BUCKET_READER_DIFFERS = "committed records that the bucket alone tells otherwise"


class Found:
    """Violations by kind, with the words for the first of each."""

    def __init__(self) -> None:
        self.counts: Counter[Violation] = Counter()
        self.words: list[tuple[Violation, str]] = []

    def add(self, violation: Violation, words: str) -> None:
        self.counts[violation] += 1
        if self.counts[violation] <= KEPT_OF_A_KIND:
            self.words.append((violation, words))

    def __bool__(self) -> bool:
        return bool(self.counts)

    def text(self) -> str:
        """One line for each that was kept, and how many there are."""
        lines = [f"{violation}: {words}" for violation, words in self.words]
        lines += [f"{count} in all: {violation}" for violation, count in self.counts.items()]
        return "\n".join(lines)
