"""The members of a classic group: those in it, those that are joining, the static ones' names, and the leader.

Owns these lists and their share of the groups' memory. Must never know the group's state or begin a rebalance:
`classic_group` does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tiered.broker.groups.classic_member import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicMember
from tiered.broker.groups.memory import MEMBER_BYTES, PENDING_MEMBER_BYTES, PROTOCOL_BYTES, Purse
from tiered.broker.groups.timer import Deadline
from tiered.broker.groups.values import JoinRequest
from tiered.errors import FencedInstance, InconsistentProtocol, TieredError, UnknownMember
from tiered.rules.groups import group_state


class Roster:
    """The lists of one group. Whatever is refused for want of memory has changed nothing."""

    def __init__(self, group_id: str, memory: Purse, *, protocol_type: str) -> None:
        self._group_id = group_id
        self._memory = memory
        self.protocol_type = protocol_type
        self.leader: str | None = None
        """None while there are no members."""
        self.members: dict[str, ClassicMember] = {}
        self.pending: dict[str, Deadline] = {}
        """Member ids that were given out and have not come back yet (KIP-394)."""
        self._static: dict[str, str] = {}
        """Instance ids of static members, with the member ids they have now."""
        self._supporters: Counter[str] = Counter()
        """How many members support each protocol."""

    # Looking

    def known(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Raises UnknownMember, and FencedInstance for a static member that was replaced."""
        if instance_id is not None:
            current_id = self._static.get(instance_id)
            if current_id is None:
                raise UnknownMember(f"group {self._group_id} has no static member {instance_id}; join again")
            if current_id != member_id:
                raise FencedInstance(f"another process took over the instance id {instance_id}; stop this one")
        member = self.members.get(member_id)
        if member is None:
            raise self.unknown(member_id)
        return member

    def unknown(self, member_id: str) -> UnknownMember:
        return UnknownMember(f"group {self._group_id} has no member {member_id or '(no id)'}; join again")

    def static_member(self, instance_id: str) -> ClassicMember | None:
        member_id = self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def check_protocols(self, request: JoinRequest, instead_of: ClassicMember | None) -> None:
        """Raises InconsistentProtocol unless the request fits to all members but `instead_of`."""
        others = len(self.members)
        supporters = self._supporters
        if instead_of is not None:
            others -= 1
            supporters = supporters - Counter(set(instead_of.protocol_names))
        offered = [protocol.name for protocol in request.protocols]
        if others and request.protocol_type != self.protocol_type:
            raise InconsistentProtocol(
                f"group {self._group_id} has protocol type {self.protocol_type!r}, not {request.protocol_type!r}; "
                "join another group"
            )
        if not group_state.supports(supporters, others, offered):
            raise InconsistentProtocol(
                f"none of the protocols {', '.join(offered)[:200]!r} is supported by all members of group "
                f"{self._group_id}; give the member one that they have (partition.assignment.strategy)"
            )

    def next_protocol(self) -> str:
        """The protocol that the members vote for. There must be one."""
        return group_state.select_protocol([member.protocol_names for member in self.members.values()])

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Changing

    def add(self, member_id: str, request: JoinRequest, expired: Callable[[str], None]) -> ClassicMember:
        """The first member leads. Its session lasts as long as a new member may wait for its first answer."""
        self._memory.take(_member_bytes(member_id, request.instance_id) + _protocols_bytes(request))
        self.drop_pending(member_id)
        member = self.members[member_id] = ClassicMember(member_id, request, expired)
        self._supporters.update(set(member.protocol_names))
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
            self.protocol_type = request.protocol_type
        member.session.set(NEW_MEMBER_JOIN_TIMEOUT_MS)
        return member

    def update(self, member: ClassicMember, request: JoinRequest) -> None:
        """The member is as `request` says."""
        self._memory.take(_protocols_bytes(request) - _protocols_bytes(member))
        self._supporters.subtract(set(member.protocol_names))
        member.update(request)
        self._supporters.update(set(member.protocol_names))
        self._supporters = +self._supporters
        if len(self.members) == 1:
            self.protocol_type = request.protocol_type

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """A static member gets another id; everything else about it stays."""
        assert member.instance_id is not None, "only static members outlive their ids"
        if self.leader == member.member_id:
            self.leader = member_id
        more_bytes = _member_bytes(member_id, None) - _member_bytes(member.member_id, None)
        with self._memory.converting():
            self._memory.take(more_bytes)
        self.members[member_id] = self.members.pop(member.member_id)
        self._static[member.instance_id] = member_id
        member.member_id = member_id

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """A member that is not named gets nothing; a name that is no member is ignored."""
        before = sum(len(member.assignment) for member in self.members.values())
        after = sum(len(assignments.get(member_id, b"")) for member_id in self.members)
        self._memory.take(after - before)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")

    def drop(self, member: ClassicMember, error: TieredError) -> None:
        """The member is none any more. Whatever it waits for, it gets `error`."""
        del self.members[member.member_id]
        self._supporters = self._supporters - Counter(set(member.protocol_names))
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        held_bytes = _protocols_bytes(member) + len(member.assignment)
        self._memory.take(-_member_bytes(member.member_id, member.instance_id) - held_bytes)
        member.leave(error)

    def add_pending(self, member_id: str, timeout_ms: int, expired: Callable[[str], None]) -> None:
        """`expired` is called unless the id comes back in time."""
        self._memory.take(PENDING_MEMBER_BYTES)
        self.pending[member_id] = deadline = Deadline(lambda: expired(member_id), patient=True)
        deadline.set(timeout_ms)

    def drop_pending(self, member_id: str) -> None:
        deadline = self.pending.pop(member_id, None)
        if deadline is not None:
            deadline.clear()
            self._memory.take(-PENDING_MEMBER_BYTES)

    def clear(self, error: TieredError) -> None:
        for member_id in list(self.pending):
            self.drop_pending(member_id)
        for member in list(self.members.values()):
            self.drop(member, error)


def wanted_topics(members: Iterable[ClassicMember]) -> frozenset[str] | None:
    """The topics that members subscribe to; None where one of them does not say so in a way we understand."""
    found: set[str] = set()
    for member in members:
        subscription = member.subscription()
        if subscription is None:
            return None
        found.update(subscription.topics)
    return frozenset(found)


def _member_bytes(member_id: str, instance_id: str | None) -> int:
    return MEMBER_BYTES + len(member_id) + len(instance_id or "")


def _protocols_bytes(of: JoinRequest | ClassicMember) -> int:
    return sum(PROTOCOL_BYTES + len(protocol.name) + len(protocol.metadata) for protocol in of.protocols)
