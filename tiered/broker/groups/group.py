"""The seam between the coordinator and the two kinds of group.

Owns the shape alone; `classic_group.ClassicGroup` and the KIP-848 groups of `consumer` implement it.
"""

from typing import Protocol

from tiered.broker.groups.values import GroupDescription, GroupKind, GroupSummary


class Group(Protocol):
    """One group, in the memory of its coordinator. No method awaits anything."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def generation(self) -> int:
        """Of the members' present assignment; the group epoch of a KIP-848 group. Never goes back."""

    @property
    def is_empty(self) -> bool:
        """No member, and none on its way in."""

    @property
    def member_count(self) -> int: ...

    def summary(self) -> GroupSummary: ...

    def describe(self) -> GroupDescription: ...

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> None:
        """Returns when the member may commit offsets now. Raises UnknownMember, IllegalGeneration, FencedInstance,
        RebalanceInProgress or StaleMemberEpoch. `generation` is the member epoch in KIP-848 groups.

        With a transaction, offsets may be sent while the group rebalances, and by whoever names no member at all: its
        producers' fencing guards those (KIP-447).
        """

    def is_subscribed_to(self, topic: str) -> bool | None:
        """Whether a member may be reading `topic`; None where that cannot be told."""

    def close(self) -> None:
        """Ends its timers; waiting members get NotCoordinator and look for the coordinator again."""
