"""The requests of classic members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Owns what is checked before a group is asked, and which kind of group is asked. Must never change a
group's members: `classic_group` does.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.values import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    StoredGroup,
    SyncRequest,
    SyncResult,
)
from tiered.errors import TieredError, UnknownMember

if TYPE_CHECKING:
    from tiered.broker.groups.coordinator import GroupCoordinator


class ClassicGroups:
    """One for a coordinator. A group of the other kind is asked through `coordinator.consumer.classic_*`."""

    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator

    def restored(self, stored: StoredGroup) -> ClassicGroup:
        """An empty group that continues above the stored generation."""
        return ClassicGroup(
            self._coordinator, stored.group_id, generation=stored.generation, protocol_type=stored.protocol_type
        )

    async def join(self, request: JoinRequest) -> JoinResult:
        raise UnknownMember("not yet")

    async def sync(self, request: SyncRequest) -> SyncResult:
        raise UnknownMember("not yet")

    async def heartbeat(self, group_id: str, *, member_id: str, instance_id: str | None, generation: int) -> None:
        raise UnknownMember("not yet")

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[TieredError | None]:
        """One answer for each of `members`: None for those that have left."""
        raise UnknownMember("not yet")
