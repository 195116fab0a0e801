"""One member of a consumer group, by the classic protocol that every Kafka broker speaks.

Owns its membership: joining, the heartbeat, committing, leaving, and as the leader the assignment (`range`). Holds
no records and no positions. One task uses it: a heartbeat is sent when that task asks, not behind its back.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tiered import errors
from tiered.peer.answers import broker_error, require_success
from tiered.peer.cluster import Cluster
from tiered.peer.coordinator import Coordinator
from tiered.peer.group_admin import CommittedOffset, commit_offsets, fetch_committed
from tiered.peer.topology import TopicPartition
from tiered.wire import consumer_protocol
from tiered.wire.error_codes import ILLEGAL_GENERATION, MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
ASSIGNOR = "range"
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
LEAVE_TIMEOUT_S = 5.0
JOIN_TRIES = 50
"""A group whose members come and go all the time must not hold one for ever."""

_REJOIN = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS})

Assignment = Mapping[str, tuple[int, ...]]


def assign_range(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """The partitions of each member: of each topic a run of neighbours, the first members one more where it does

    not come out even. Members are in the order of their ids, as with Kafka's assignor of this name.
    """
    found: dict[str, dict[str, tuple[int, ...]]] = {member: {} for member in subscriptions}
    for topic, count in partition_counts.items():
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        begin = 0
        for index, member in enumerate(members):
            length = count // len(members) + (1 if index < count % len(members) else 0)
            if length:
                found[member][topic] = tuple(range(begin, begin + length))
            begin += length
    return found


class GroupMember:
    """A member of `group_id` that wants `topics`. `join` first; `leave` in the end."""

    def __init__(self, cluster: Cluster, group_id: str, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._coordinator = Coordinator(cluster, group_id)
        self._topics = tuple(topics)
        self._generation = -1
        self._counts: dict[str, int] = {}
        self.member_id = ""
        self.is_leader = False

    @property
    def group_id(self) -> str:
        return self._coordinator.group_id

    async def join(self) -> Assignment:
        """This member's assignment. Takes as long as the other members need to join, at most the rebalance time-out.

        Raises BrokerError when the group refuses the member.
        """
        for _ in range(JOIN_TRIES):
            joined = await self._join_once()
            if joined.error_code == MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code in _REJOIN:
                self._forget(joined.error_code)
                continue
            require_success(joined, f"group {self.group_id} does not take this member")
            self.member_id, self._generation = joined.member_id, joined.generation_id
            self.is_leader = joined.leader == joined.member_id
            plan = await self._plan(joined.members) if self.is_leader else {}
            synced = await self._sync(joined.protocol_name, plan)
            if synced.error_code in _REJOIN:
                self._forget(synced.error_code)
                continue
            require_success(synced, f"group {self.group_id} gave no assignment")
            data = bytes(synced.assignment)
            return consumer_protocol.decode_assignment(data).partitions if data else {}
        raise errors.RequestTimedOut(f"group {self.group_id} did not come to rest in {JOIN_TRIES} rebalances")

    async def _join_once(self) -> Any:
        subscription = consumer_protocol.Subscription(topics=self._topics, version=1)
        metadata = consumer_protocol.encode_subscription(subscription)
        return await self._coordinator.ask(
            JOIN_GROUP,
            lambda make: make.JoinGroupRequest(
                group_id=self.group_id,
                session_timeout=SESSION_TIMEOUT_MS,
                rebalance_timeout=REBALANCE_TIMEOUT_MS,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type=consumer_protocol.PROTOCOL_TYPE,
                protocols=(make.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata),),
                reason=None,
            ),
            _code_of,
            longer_ms=REBALANCE_TIMEOUT_MS,
        )

    async def _plan(self, members: Sequence[Any]) -> dict[str, bytes]:
        """The assignment of each member, as bytes: the leader's task."""
        subscriptions = {each.member_id: _topics_of(bytes(each.metadata)) for each in members}
        self._counts = await self._partition_counts({topic for topics in subscriptions.values() for topic in topics})
        return {
            member: consumer_protocol.encode_assignment(consumer_protocol.Assignment(partitions=partitions, version=1))
            for member, partitions in assign_range(subscriptions, self._counts).items()
        }

    async def _partition_counts(self, topics: set[str]) -> dict[str, int]:
        described = await self._cluster.metadata(sorted(topics))
        return {each.name: len(each.partitions) for each in described.topics.values() if not each.error_code}

    async def _sync(self, protocol_name: str, plan: Mapping[str, bytes]) -> Any:
        return await self._coordinator.ask(
            SYNC_GROUP,
            lambda make: make.SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type=consumer_protocol.PROTOCOL_TYPE,
                protocol_name=protocol_name,
                assignments=tuple(
                    make.SyncGroupRequestAssignment(member_id=member, assignment=data) for member, data in plan.items()
                ),
            ),
            _code_of,
            longer_ms=REBALANCE_TIMEOUT_MS,
        )

    def _forget(self, code: int) -> None:
        """A group that does not know the member has forgotten it: it comes back as a new one."""
        self._generation = -1
        if code == UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def heartbeat(self) -> bool:
        """True while the assignment holds; after False, commit and `join` again. Raises BrokerError when fenced."""
        answer = await self._coordinator.ask(
            HEARTBEAT,
            lambda make: make.HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self.member_id,
                group_instance_id=None,
            ),
            _code_of,
        )
        return self._holds(answer.error_code)

    async def partitions_changed(self) -> bool:
        """True when this is the leader and a topic has other partitions than those that were assigned."""
        return self.is_leader and await self._partition_counts(set(self._counts)) != self._counts

    async def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets, after transactions that write offsets have ended."""
        return await fetch_committed(self._coordinator, stable=True)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """True when all were taken and the assignment holds; after False, `join` again: others may have them now."""
        if not offsets:
            return True
        codes = await commit_offsets(self._coordinator, offsets, member_id=self.member_id, generation=self._generation)
        # While a rebalance goes on, offsets of the generation that ends are still taken.
        return all(self._holds(code) for code in set(codes.values()))

    def _holds(self, code: int) -> bool:
        if code in _REJOIN:
            if code != REBALANCE_IN_PROGRESS:
                self._forget(code)
            return False
        if code:
            raise broker_error(code, f"group {self.group_id} refuses this member")
        return True

    async def leave(self) -> None:
        """The others get its partitions at once. Ends the connection, whatever the coordinator says."""
        try:
            if self.member_id:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    await self._coordinator.ask(
                        LEAVE_GROUP,
                        lambda make: make.LeaveGroupRequest(
                            group_id=self.group_id,
                            member_id=self.member_id,
                            members=(
                                make.MemberIdentity(member_id=self.member_id, group_instance_id=None, reason=None),
                            ),
                        ),
                        _code_of,
                    )
        except (errors.TieredError, TimeoutError):
            pass  # Its session ends by itself.
        finally:
            self._coordinator.close()


def _code_of(answer: Any) -> tuple[int]:
    return (int(answer.error_code),)


def _topics_of(metadata: bytes) -> tuple[str, ...]:
    """Members may send what they like: who sends no subscription wants nothing."""
    try:
        return consumer_protocol.decode_subscription(metadata).topics
    except errors.MalformedRequest:
        return ()
