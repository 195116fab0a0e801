"""Questions to groups, their answers, and their descriptions: values without behaviour.

Owns the shapes that the doors, the two kinds of group and the offsets share. Must never hold state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tiered.errors import InvalidRequest

_NOTHING: Mapping[str, tuple[int, ...]] = MappingProxyType({})
MAX_GROUP_ID_BYTES = 2000
"""Of UTF-8: what an index entry of PostgreSQL holds, with room for the other columns."""


class GroupKind(StrEnum):
    """The protocol that a group runs. The values are what SQL and the HTTP API show."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One line of a list of groups. `state` is Kafka's name of it."""

    group_id: str
    kind: GroupKind
    protocol_type: str
    state: str
    member_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member. `assignment` maps topic names to partitions; it is empty where the protocol type is not "consumer".

    `metadata_bytes` and `assignment_bytes` are what a classic member and its leader sent, for DescribeGroups.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...] = ()
    assignment: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NOTHING)
    member_epoch: int = -1
    rack: str | None = None
    metadata_bytes: bytes = b""
    assignment_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A whole group. `generation` is the group epoch of a KIP-848 group; `protocol_name` its assignor."""

    group_id: str
    kind: GroupKind
    protocol_type: str
    protocol_name: str
    state: str
    generation: int
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Permission to write offsets: void as soon as the slot has another holder or the group a later generation.

    `tenure` is that of the slot. The broker's memory of the group does not outlive it, not even if the slot comes back.
    """

    group_id: str
    slot: int
    tenure: int | None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProtocol:
    """One of the protocols (assignors) that a classic member supports, best first."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup. An empty `member_id` is a new member."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    requires_known_member_id: bool
    """v4 and later: a new member first gets its id, then joins with it (KIP-394)."""
    supports_skipping_assignment: bool
    """v9 and later (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """The member's facts for the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """A successful JoinGroup. Only the leader gets `members`."""

    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup. `assignments` (member id to bytes) comes from the leader alone."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """A successful SyncGroup: the member's own assignment."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """One member of a LeaveGroup: by id, or (static ones) by instance id with an empty member id."""

    member_id: str
    instance_id: str | None


def check_transactional_id(transactional_id: str) -> None:
    """Raises InvalidRequest for what SQL could not store, or people could not read."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty; set transactional.id")
    if "\0" in transactional_id or len(transactional_id.encode("utf-8", "surrogatepass")) > MAX_GROUP_ID_BYTES:
        raise InvalidRequest(
            f"a transactional id has at most {MAX_GROUP_ID_BYTES} bytes of UTF-8, and none of them is 0"
        )
