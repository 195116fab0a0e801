"""Open findings of reconciling and scrubbing: for the log, /metrics, /readyz and people.

Owns the list, its bound, and its lines in the log. Must never forget a finding that was not looked at again, nor fill
the log with one that everybody knows.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from tiered.formats.segment_check import FaultKind
from tiered.ids import TopicId, TopicPartition

log = logging.getLogger(__name__)

MAX_FINDINGS = 1_000
"""More are counted and not kept: they are found again once there is room."""
MAX_LINES_A_ROUND = 20


class FindingKind(StrEnum):
    """The kind of difference. The words are part of the metrics and of the API."""

    MISSING = "missing"
    """The store has no object where the catalogue says that there is one."""
    WRONG_SIZE = "wrong-size"
    """The object has another size than was committed: it is truncated, or another one."""
    DAMAGED = "damaged"
    """The object's bytes are not those that were uploaded."""
    UNKNOWN_OBJECT = "unknown-object"
    """The store has an object that the catalogue does not know."""
    CATALOGUE = "catalogue"
    """This broker and the database disagree about what is committed."""
    OVERDUE_UPLOAD = "overdue-upload"
    """Closed segments should be in the store by now."""
    STUCK_UPLOAD = "stuck-upload"
    """Closed segments can never be uploaded as things are."""
    UNUSED_FILE = "unused-file"
    """A local file or folder that nobody uses."""
    LACKING_FILE = "lacking-file"
    """A segment's local file is gone or has another size."""


OF_OBJECTS = frozenset({FindingKind.MISSING, FindingKind.WRONG_SIZE, FindingKind.DAMAGED, FindingKind.CATALOGUE})
LOST = OF_OBJECTS - {FindingKind.CATALOGUE}
"""The store does not hold what was committed: a local copy may be the last one."""
OF_COMPARISON = frozenset(
    {FindingKind.MISSING, FindingKind.WRONG_SIZE, FindingKind.UNKNOWN_OBJECT, FindingKind.CATALOGUE}
)
OF_UPLOADS = frozenset({FindingKind.OVERDUE_UPLOAD, FindingKind.STUCK_UPLOAD})
OF_DISK = frozenset({FindingKind.UNUSED_FILE, FindingKind.LACKING_FILE})
_ERRORS = frozenset({FindingKind.MISSING, FindingKind.WRONG_SIZE, FindingKind.DAMAGED, FindingKind.LACKING_FILE})
_OF_FAULTS = {
    FaultKind.MISSING: FindingKind.MISSING,
    FaultKind.TRUNCATED: FindingKind.WRONG_SIZE,
    FaultKind.OVERSIZED: FindingKind.WRONG_SIZE,
}

Key = tuple[FindingKind, UUID, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, and what to do about it. Offsets are inclusive, -1 where none are concerned; `name` is
    an object's key or a path. `chunk` counts from 0 in its object, -1 where it is all of it. Times are the wall
    clock's: when it was first and last seen."""

    kind: FindingKind
    topic: str
    topic_id: UUID
    partition: int
    message: str
    advice: str
    name: str = ""
    first_offset: int = -1
    last_offset: int = -1
    chunk: int = -1
    found_at_ms: int = 0
    seen_at_ms: int = 0

    @property
    def key(self) -> Key:
        return self.kind, self.topic_id, self.partition, self.name, self.chunk

    @property
    def text(self) -> str:
        """One line for people."""
        where = f"{self.topic}-{self.partition}" if self.partition >= 0 else self.topic
        offsets = f" offsets {self.first_offset} to {self.last_offset}" if self.first_offset >= 0 else ""
        name = f" [{self.name}]" if self.name else ""
        return f"{where}{offsets}: {self.kind}: {self.message}; {self.advice}{name}"


def kind_of(fault: FaultKind) -> FindingKind:
    """A verifier's fault as a finding."""
    return _OF_FAULTS.get(fault, FindingKind.DAMAGED)


class Findings:
    """The findings of one broker."""

    def __init__(self) -> None:
        # By partition: each of ten thousand asks for its own in every round.
        self._found: dict[TopicPartition, dict[Key, Finding]] = {}
        self._count = 0
        self._lines_left = MAX_LINES_A_ROUND
        self.omitted = 0
        """Times that a finding had no room."""

    def __len__(self) -> int:
        return self._count

    def all(self) -> list[Finding]:
        """By topic, partition and offset."""
        return sorted(self._each(), key=lambda each: (each.topic, each.partition, each.first_offset, each.name))

    def by_kind(self) -> dict[str, int]:
        """How many there are of each kind, those of which there are none included."""
        counts = Counter(each.kind for each in self._each())
        return {kind.value: counts[kind] for kind in FindingKind}

    def first_lost_offset(self, where: TopicPartition) -> int | None:
        """The first offset of the partition that the store is known to lack; None where it lacks none."""
        found = self._found.get(where, {}).values()
        return min((each.first_offset for each in found if each.kind in LOST), default=None)

    def begin_round(self) -> None:
        """The log may be told a few lines again."""
        self._lines_left = MAX_LINES_A_ROUND

    def replace(
        self,
        where: TopicPartition | None,
        is_looked_at: Callable[[Finding], bool],
        found: Sequence[Finding],
        now_ms: int,
    ) -> None:
        """Of all that was looked at in that partition, or anywhere, `found` is what is wrong now; the rest is well."""
        known = list(self._each()) if where is None else list(self._found.get(where, {}).values())
        fresh = {each.key for each in found}
        for each in known:
            if each.key not in fresh and is_looked_at(each):
                self._remove(each)
                self._say(logging.WARNING, "well again: %s", each.text)
        for each in found:
            before = self._found.get(_where(each), {}).get(each.key)
            if before is None and self._count >= MAX_FINDINGS:
                self.omitted += 1
                continue
            found_at_ms = now_ms if before is None else before.found_at_ms
            self._put(replace(each, found_at_ms=found_at_ms, seen_at_ms=now_ms))
            if before is None:
                self._say(logging.ERROR if each.kind in _ERRORS else logging.WARNING, "%s", each.text)

    def forget(self, is_gone: Callable[[Finding], bool]) -> None:
        """Drops findings that are nobody's here any more: of what was deleted, or others lead."""
        for each in list(self._each()):
            if is_gone(each):
                self._remove(each)

    def _each(self) -> Iterator[Finding]:
        for each in self._found.values():
            yield from each.values()

    def _put(self, finding: Finding) -> None:
        there = self._found.setdefault(_where(finding), {})
        self._count += finding.key not in there
        there[finding.key] = finding

    def _remove(self, finding: Finding) -> None:
        where = _where(finding)
        del self._found[where][finding.key]
        self._count -= 1
        if not self._found[where]:
            del self._found[where]

    def _say(self, level: int, message: str, text: str) -> None:
        self._lines_left -= 1
        if self._lines_left > 0:
            log.log(level, message, text)
        elif self._lines_left == 0:
            log.warning("more was found in this round than is told here: `tiered reconcile` lists it")


def _where(finding: Finding) -> TopicPartition:
    return TopicPartition(TopicId(finding.topic_id), finding.partition)
