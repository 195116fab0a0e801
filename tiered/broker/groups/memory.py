"""How much memory all groups of a broker take, against one bound.

Owns the sum, and whose it is. Must never hold what it counts. Costs are estimates of what the objects take, above all
of what clients can make large: metadata and assignments.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tiered.account import OwnersShares, current
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
        self._shares = OwnersShares()
        self._is_converting = False
        self._is_restoring = False

    @property
    def taken_bytes(self) -> int:
        return self._shares.total

    @contextmanager
    def converting(self) -> Iterator[None]:
        """Within it nothing is refused: what was let in before only goes on in another shape."""
        outer, self._is_converting = self._is_converting, True
        try:
            yield
        finally:
            self._is_converting = outer

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """The same for what goes on after another coordinator, or a restart: nobody here knows whose it is."""
        self._is_restoring = True
        try:
            with self.converting():
                yield
        finally:
            self._is_restoring = False

    def purse(self) -> "Purse":
        """For a group that is made now, by whose step this is."""
        account = None if self._is_restoring else current()
        return Purse(self, None if account is None else account.owner)

    def take(self, size_bytes: int, *, share: float = 1.0, owner: Hashable = None) -> None:
        """Raises CoordinatorNotAvailable, and takes nothing, when this share of the bound would be exceeded by all
        together, or when the owner would have more than is free. Less than 0 gives back, and always succeeds."""
        if size_bytes > 0 and not self._is_converting:
            limit_bytes = int(share * self._limit_bytes())
            if self.taken_bytes + size_bytes > limit_bytes:
                raise CoordinatorNotAvailable(
                    "groups take all the memory that they may (tiered.group.memory.bytes); try again later"
                )
            if owner is not None and not self._shares.has_room(owner, size_bytes, limit_bytes):
                raise CoordinatorNotAvailable(
                    f"the groups of {owner} take as much memory as is free (tiered.group.memory.bytes); try again later"
                )
        self._shares.take(owner, size_bytes)


class Purse:
    """What one group takes, on behalf of whoever brought the group."""

    __slots__ = ("_memory", "_owner")

    def __init__(self, memory: GroupMemory, owner: Hashable) -> None:
        self._memory = memory
        self._owner = owner

    def take(self, size_bytes: int) -> None:
        """As `GroupMemory.take`."""
        self._memory.take(size_bytes, owner=self._owner)

    def converting(self) -> AbstractContextManager[None]:
        """As `GroupMemory.converting`."""
        return self._memory.converting()
