"""How much memory all groups of a broker take, against one bound.

Owns the sum. Must never hold what it counts. Costs are estimates of what the objects take, above all of what
clients can make large: metadata and assignments.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tiered.errors import CoordinatorNotAvailable

GROUP_BYTES = 2_000
"""Without its id."""
MEMBER_BYTES = 2_000
"""Without its ids."""
PENDING_MEMBER_BYTES = 1_000
PROTOCOL_BYTES = 200
"""One of a classic member's protocols, without its name and metadata."""


class GroupMemory:
    """Counts what groups take. Everything taken is given back when it is dropped."""

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self.taken_bytes = 0
        self._is_converting = False

    @contextmanager
    def converting(self) -> Iterator[None]:
        """Within it nothing is refused: what was let in before only goes on in another shape."""
        self._is_converting = True
        try:
            yield
        finally:
            self._is_converting = False

    def take(self, size_bytes: int, *, share: float = 1.0) -> None:
        """Raises CoordinatorNotAvailable, and takes nothing, when this share of the bound would be exceeded by all
        together. Less than 0 gives back, and always succeeds."""
        limit_bytes = share * self._limit_bytes()
        if size_bytes > 0 and not self._is_converting and self.taken_bytes + size_bytes > limit_bytes:
            raise CoordinatorNotAvailable(
                "groups take all the memory that they may (tiered.group.memory.bytes); try again later"
            )
        self.taken_bytes += size_bytes
