"""The requests of classic members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Owns what is checked before a group is asked, which group and of which kind that is, and the waiting for its
answer. Must never change a group's members: `classic_group` does.
"""

import asyncio
from collections.abc import Sequence

from tiered.broker.groups import consumer_classic, stored_members
from tiered.broker.groups.classic_group import ClassicGroup
from tiered.broker.groups.consumer_group import ConsumerGroup
from tiered.broker.groups.surroundings import Surroundings
from tiered.broker.groups.values import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from tiered.errors import InconsistentProtocol, InvalidRequest, InvalidSessionTimeout, TieredError, UnknownMember
from tiered.formats.group_members import KeptClassicGroup
from tiered.meta.groups import GroupRow
from tiered.rules.groups.consumer_heartbeat import MAX_NAME_CHARS

MAX_LEAVING = 10_000
"""Members in one LeaveGroup: they leave in one go, for which everybody else waits."""


class ClassicGroups:
    """One for a coordinator. `consumer_classic` answers classic members of a group of the new protocol."""

    def __init__(self, coordinator: Surroundings) -> None:
        self._coordinator = coordinator

    def restored(self, stored: GroupRow, kept: KeptClassicGroup | None) -> ClassicGroup:
        """A stable group of the stored generation, or (without `kept`) an empty one that continues above it."""
        group = ClassicGroup(
            self._coordinator, stored.group_id, generation=stored.generation, protocol_type=stored.protocol_type
        )
        if kept is not None:
            members = [(stored_members.join_request(stored, each), each.assignment) for each in kept.members]
            group.restore(members, leader=kept.leader, protocol_name=kept.protocol_name)
        elif stored.members is not None:
            group.note()
        return group

    async def join(self, request: JoinRequest) -> JoinResult:
        """Returns when the rebalance is complete. Cancelled, it leaves the member behind until its session ends.

        Raises what `ClassicGroup.join` raises, InvalidGroup, InvalidRequest, InvalidSessionTimeout, NotCoordinator.
        """
        self._coordinator.check_ours(request.group_id)
        _check_names(request)
        settings = self._coordinator.context.settings
        shortest_ms, longest_ms = (
            settings.groups.group_min_session_timeout_ms,
            settings.groups.group_max_session_timeout_ms,
        )
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise InvalidSessionTimeout(
                f"a session time-out of {request.session_timeout_ms} ms; {shortest_ms} to {longest_ms} are possible "
                "(group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocol("a member names its protocol type and at least one protocol")
        group = await self._coordinator.load(request.group_id)
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                result = consumer_classic.join(self._coordinator, group, request)
                if result is not None:
                    return result
            else:
                # No member needs the new protocol any more.
                found = ClassicGroup(self._coordinator, request.group_id, generation=group.generation)
                self._coordinator.adopt(found)
                group.close()
            return await self.join(request)
        if group is None:
            if request.member_id:
                raise _unknown_group(request.group_id)
            self._coordinator.count_new()
            group = self._coordinator.adopt(ClassicGroup(self._coordinator, request.group_id))
        assert isinstance(group, ClassicGroup), "there are two kinds of groups"
        answer = group.join(request)
        return await answer if isinstance(answer, asyncio.Future) else answer

    async def sync(self, request: SyncRequest) -> SyncResult:
        """Returns when the leader has assigned. Raises what `ClassicGroup.sync` raises, and InvalidGroup."""
        group = await self._existing(request.group_id)
        if isinstance(group, ConsumerGroup):
            return consumer_classic.sync(self._coordinator, group, request)
        answer = group.sync(request)
        return await answer if isinstance(answer, asyncio.Future) else answer

    async def heartbeat(self, group_id: str, *, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raises what `ClassicGroup.heartbeat` raises, and InvalidGroup."""
        group = await self._existing(group_id)
        if isinstance(group, ConsumerGroup):
            consumer_classic.heartbeat(group, member_id, instance_id, generation)
        else:
            group.heartbeat(member_id, instance_id, generation)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[TieredError | None]:
        """One answer for each of `members`: None for those that have left. Raises InvalidGroup, InvalidRequest."""
        if len(members) > MAX_LEAVING:
            raise InvalidRequest(f"{len(members)} members leave with one request; {MAX_LEAVING} at most do")
        try:
            group = await self._existing(group_id)
        except UnknownMember as error:
            return [error.without_frames()] * len(members)
        if isinstance(group, ClassicGroup):
            return group.leave(members)
        answers: list[TieredError | None] = []
        for member in members:
            group = await self._existing(group_id)
            if isinstance(group, ClassicGroup):
                # It has turned classic with the one that left before.
                answers += group.leave([member])
                continue
            try:
                consumer_classic.leave(group, member)
                answers.append(None)
            except TieredError as error:
                answers.append(error.without_frames())
        return answers

    async def _existing(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """The group in memory. Once those of its slot are loaded, one that is not there has no members, so SQL need not
        be asked."""
        self._coordinator.check_ours(group_id)
        group = self._coordinator.find(group_id)
        if group is None and self._coordinator.is_loading(group_id):
            group = await self._coordinator.load(group_id)
        if group is None:
            raise _unknown_group(group_id)
        assert isinstance(group, ClassicGroup | ConsumerGroup), "there are two kinds of groups"
        return group


def _check_names(request: JoinRequest) -> None:
    """Raises InvalidRequest for names that SQL cannot keep, or that would take more memory than is counted."""
    for what, text in (
        ("member id", request.member_id),
        ("instance id", request.instance_id or ""),
        ("protocol type", request.protocol_type),
    ):
        if len(text) > MAX_NAME_CHARS or "\0" in text:
            raise InvalidRequest(f"the {what} has at most {MAX_NAME_CHARS} characters, and none of them is 0")


def _unknown_group(group_id: str) -> UnknownMember:
    return UnknownMember(f"group {group_id} has no members here; join again")
