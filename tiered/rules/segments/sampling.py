"""Which chunks a sample of the store takes: a share of them, chosen by hash, the same for the same seed.

Owns that choice. Pure. Must never depend on the order in which chunks come, or on anything that a resumed run
would find otherwise.

Each chunk has its place on a circle, by hash. Seed n takes the n-th arc of the sample's size: so a tenth with the seeds
0 to 9 takes every chunk once, and another seed each day reads everything in ten days.
"""

import hashlib
import math
from dataclasses import dataclass
from uuid import UUID

_CIRCLE = 1 << 64
_HAIR = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSample:
    """The share `fraction` (above 0, at most 1) of all chunks that belongs to `seed` (0 or more)."""

    fraction: float = 1.0
    seed: int = 0

    @property
    def is_everything(self) -> bool:
        return self.fraction >= 1.0

    @property
    def seeds(self) -> int:
        """How many seeds, from 0 on, together take everything."""
        return math.ceil(1 / self.fraction)

    def chosen(self, object_id: UUID, chunks: int, *, at_least_one: bool) -> list[int]:
        """The object's chunks in the sample, else one of them where `at_least_one` is wanted."""
        found = [chunk for chunk in range(chunks) if self.has(object_id, chunk)]
        if not found and at_least_one and chunks:
            return [self.seed % chunks]
        return found

    def has(self, object_id: UUID, chunk: int) -> bool:
        """True when chunk number `chunk` of that object belongs to the sample."""
        if self.is_everything:
            return True
        # A hair more than asked for: three arcs of 0.333... must leave nothing out.
        arc = int(self.fraction * _CIRCLE) + _HAIR
        place = int.from_bytes(hashlib.sha256(object_id.bytes + chunk.to_bytes(8, "big")).digest()[:8], "big")
        return (place - self.seed * arc) % _CIRCLE < arc
