"""Groups of the new protocol (KIP-848). (Not written yet.)"""

from typing import TYPE_CHECKING

from tiered.broker.groups.group import Group
from tiered.broker.groups.values import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    StoredGroup,
    SyncRequest,
    SyncResult,
)
from tiered.errors import InvalidGroup

if TYPE_CHECKING:
    from tiered.broker.groups.coordinator import GroupCoordinator


class ConsumerGroups:
    """Classic members of a KIP-848 group are answered here too: `classic_*` get what `ClassicGroups` was asked."""

    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator

    def restored(self, stored: StoredGroup) -> Group:
        """An empty group that continues above the stored epoch."""
        raise _not_yet(stored.group_id)

    async def classic_join(self, group: Group, request: JoinRequest) -> JoinResult:
        raise _not_yet(group.group_id)

    async def classic_sync(self, group: Group, request: SyncRequest) -> SyncResult:
        raise _not_yet(group.group_id)

    def classic_heartbeat(self, group: Group, *, member_id: str, instance_id: str | None, generation: int) -> None:
        raise _not_yet(group.group_id)

    def classic_leave(self, group: Group, member: LeavingMember) -> None:
        raise _not_yet(group.group_id)


def _not_yet(group_id: str) -> InvalidGroup:
    return InvalidGroup(f"group {group_id} runs the consumer protocol, which is not served yet")
