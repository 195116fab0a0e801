"""One member of a KIP-848 group, and how it moves towards its target: first giving up, then taking.

Owns the member's states and epochs, and whether an epoch that it sends is its own. Pure: a member is a value,
`consumer_group` keeps the present one and knows which partitions are free.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from tiered.errors import FencedMemberEpoch
from tiered.rules.groups.assignors import NO_PARTITIONS, Partitions
from tiered.rules.security.principal import Principal

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2
"""A static member that comes back soon: it keeps its partitions until its session times out."""


class Pattern(NamedTuple):
    """A regular expression of topics, and its subscriber: it means those that this principal, from this address, may
    describe."""

    text: str = ""
    principal: Principal | None = None
    host: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


NO_PATTERN: Final = Pattern()


class MemberState(StrEnum):
    """How far a member is with its target."""

    STABLE = "stable"
    """It has what the target gives it."""
    UNREVOKED_PARTITIONS = "unrevoked"
    """It must say that it has given up partitions; until then it stays in its epoch."""
    UNRELEASED_PARTITIONS = "unreleased"
    """It is in the target's epoch, and others still have some of its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicFacts:
    """A classic member's own data: its session, and (name, metadata) of its protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    must_sync: bool = False
    """It has joined and not yet fetched its assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """`assigned` is what it may use; `revoking` what it no longer may, and may not have stopped using."""

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topics: frozenset[str] = frozenset()
    pattern: Pattern = NO_PATTERN
    """Of topics besides `topics`."""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    revoking: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    unconfirmed: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """What it was given and has not said yet that it owns: it may be on its way to using it."""
    classic: ClassicFacts | None = None

    @property
    def is_away(self) -> bool:
        """A static member that said it would be back."""
        return self.epoch == LEAVE_FOR_A_WHILE

    def at_epoch(self, epoch: int) -> "Member":
        """In this epoch; the one before it is remembered when it is another."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)


def check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Raises FencedMemberEpoch unless `epoch` is the member's own.

    One older epoch is let through: the answer that carried the present one was lost. The member then sends its
    previous epoch, and all that it owns is what it may own now.
    """
    if epoch == member.epoch:
        return
    lost_answer = epoch == member.previous_epoch and owned is not None and not minus(owned, member.assigned)
    if epoch > member.epoch or not lost_answer:
        raise FencedMemberEpoch(
            f"member {member.member_id} sent epoch {epoch}, and it is in epoch {member.epoch}: "
            "give up all partitions and join again with epoch 0"
        )


def reconciled(
    member: Member,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_certain: bool = True,
    is_free: Callable[[Partitions], Partitions],
) -> Member:
    """The member after its next step. `owned` are the partitions that it reports, None when it did not report them.

    `is_free(partitions)` answers those that no other member has. Partitions that the target does not give are revoked
    first. Only a member that has confirmed this goes on to the target's epoch and takes free ones.

    A full heartbeat is not certain (`is_certain`): it repeats what the member has last confirmed, and says nothing
    of what it was given since and may be about to use.
    """
    if owned is not None:
        member = replace(member, unconfirmed=minus(member.unconfirmed, owned))
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if not _has_given_up(member, member.revoking, owned, is_certain=is_certain):
            # It still revokes. Partitions that a newer target takes away as well are revoked at once.
            return _revoke(member, minus(member.assigned, target))
    elif member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    keeps = common(member.assigned, target)
    gives = minus(member.assigned, target)
    if gives and (
        not _has_given_up(member, gives, owned, is_certain=is_certain)
        or (not is_certain and common(gives, member.unconfirmed))
    ):
        return _revoke(replace(member, revoking=NO_PARTITIONS), gives)
    wants = minus(target, keeps)
    takes = is_free(wants)
    waits = minus(wants, takes)
    return replace(
        member.at_epoch(target_epoch),
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        assigned=union(keeps, takes),
        unconfirmed=union(common(member.unconfirmed, keeps), takes),
        revoking=NO_PARTITIONS,
    )


def _has_given_up(member: Member, gone: Partitions, owned: Partitions | None, *, is_certain: bool) -> bool:
    """Whether `owned` proves that the member uses nothing of `gone` any more."""
    if owned is None or common(owned, gone):
        return False
    # Its last confirmation cannot give up partitions that it never reported, unless it is about its present ones.
    return is_certain or not common(member.unconfirmed, gone) or not minus(member.assigned, owned)


def _revoke(member: Member, gives: Partitions) -> Member:
    return replace(
        member,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=minus(member.assigned, gives),
        revoking=union(member.revoking, gives),
    )


# Sets of partitions


def common(left: Partitions, right: Partitions) -> Partitions:
    return {topic: both for topic, held in left.items() if (both := held & right.get(topic, frozenset()))}


def minus(left: Partitions, right: Partitions) -> Partitions:
    return {topic: rest for topic, held in left.items() if (rest := held - right.get(topic, frozenset()))}


def union(left: Partitions, right: Partitions) -> Partitions:
    if not right:
        return left
    return {**left, **{topic: held | left.get(topic, frozenset()) for topic, held in right.items()}}
