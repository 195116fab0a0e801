"""One classic group: its members, its state and its timers.

Owns all of that. What a request or a timer means in which state is decided in `rules.group_state`.
"""

from typing import TYPE_CHECKING

from tiered.broker.groups.values import GroupDescription, GroupKind, GroupSummary
from tiered.rules.group_state import GroupState

if TYPE_CHECKING:
    from tiered.broker.groups.coordinator import GroupCoordinator


class ClassicGroup:
    """Implements `group.Group`."""

    def __init__(
        self, coordinator: "GroupCoordinator", group_id: str, *, generation: int = -1, protocol_type: str = ""
    ) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._generation = max(0, generation)
        self._state = GroupState.EMPTY
        self._protocol_type = protocol_type

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CLASSIC

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def is_empty(self) -> bool:
        return self._state is GroupState.EMPTY

    @property
    def member_count(self) -> int:
        return 0

    def summary(self) -> GroupSummary:
        return GroupSummary(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=self._protocol_type,
            state=self._state.value,
            member_count=self.member_count,
        )

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self._group_id,
            kind=self.kind,
            protocol_type=self._protocol_type,
            protocol_name="",
            state=self._state.value,
            generation=self._generation,
            members=(),
        )

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Not yet."""

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def close(self) -> None:
        """Nothing waits yet."""
