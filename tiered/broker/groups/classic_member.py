"""One member of a classic group.

Owns the member's metadata, its assignment, its session and the answers that it waits for. Must never change its group:
`classic_group` does.
"""

import asyncio
from collections.abc import Callable

from tiered.broker.groups.timer import Deadline
from tiered.broker.groups.values import JoinRequest, JoinResult, MemberDescription, MemberProtocol, SyncResult
from tiered.errors import MalformedRequest, TieredError
from tiered.rules.groups.consumer_heartbeat import MAX_NAME_CHARS
from tiered.runtime import new_uuid
from tiered.wire import consumer_protocol
from tiered.wire.consumer_protocol import Subscription

# A new member cannot send heartbeats before its first answer: its JoinGroup waits for so long at the most.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class ClassicMember:
    """Made when it is let in; `leave` when it is dropped."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "request",
        "session",
        "session_timeout_ms",
        "sync",
    )

    def __init__(self, member_id: str, request: JoinRequest, expire: Callable[[str], None]) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.assignment = b""
        self.is_new = True
        """It has not had its first answer."""
        self.join: asyncio.Future[JoinResult] | None = None
        self.sync: asyncio.Future[SyncResult] | None = None
        self.session = Deadline(lambda: expire(self.member_id), patient=True)
        self.update(request)

    def update(self, request: JoinRequest) -> None:
        """The fields of a member's JoinGroup."""
        self.request = request
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocol_type = request.protocol_type
        self.protocols: tuple[MemberProtocol, ...] = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms

    @property
    def protocol_names(self) -> tuple[str, ...]:
        return tuple(protocol.name for protocol in self.protocols)

    @property
    def has_joined(self) -> bool:
        """Its JoinGroup waits to be answered, even if the connection that it came on has gone since."""
        return self.join is not None

    @property
    def is_heard_of(self) -> bool:
        """The client waits on a living connection, so its silence is no sign of death."""
        return is_waiting(self.join) or is_waiting(self.sync)

    def touch(self) -> None:
        """It is alive: its session begins anew."""
        self.session.set(self.session_timeout_ms)

    def metadata(self, protocol_name: str) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")

    def subscription(self) -> Subscription | None:
        """Its subscription, by the protocol that it likes best; None where this is not a consumer's metadata."""
        if self.protocol_type != consumer_protocol.PROTOCOL_TYPE:
            return None
        try:
            return consumer_protocol.decode_subscription(self.protocols[0].metadata)
        except MalformedRequest:
            return None

    def wait_for_join(self) -> "asyncio.Future[JoinResult]":
        self.join = asyncio.get_running_loop().create_future()
        self.join.add_done_callback(self._ended)
        return self.join

    def wait_for_sync(self) -> "asyncio.Future[SyncResult]":
        self.sync = asyncio.get_running_loop().create_future()
        self.sync.add_done_callback(self._ended)
        return self.sync

    def _ended(self, future: "asyncio.Future[JoinResult] | asyncio.Future[SyncResult]") -> None:
        if not future.cancelled():
            future.exception()  # If the waiter went away, its error is not reported as a bug.
        elif future is self.join or future is self.sync:
            # Its connection has gone: from now on silence counts.
            self.touch()

    def answer_join(self, result: JoinResult) -> bool:
        """False when its connection has gone, so that nobody gets the answer."""
        future, self.join = self.join, None
        if not is_waiting(future):
            return False
        assert future is not None
        future.set_result(result)
        return True

    def answer_sync(self, result: SyncResult) -> None:
        future, self.sync = self.sync, None
        if future is not None and not future.done():
            future.set_result(result)

    def refuse_sync(self, error: TieredError) -> None:
        future, self.sync = self.sync, None
        if future is not None and not future.done():
            future.set_exception(error)

    def refuse(self, error: TieredError) -> None:
        """Whatever it waits for, it gets `error`."""
        future, self.join = self.join, None
        if future is not None and not future.done():
            future.set_exception(error)
        self.refuse_sync(error)

    def leave(self, error: TieredError) -> None:
        """Ends its session; whatever it waits for, it gets `error`."""
        self.session.end()
        self.refuse(error)

    def describe(self, protocol_name: str) -> MemberDescription:
        """With an empty protocol name (no generation is complete) metadata and assignment are left out."""
        subscription = self.subscription()
        return MemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topics=subscription.topics if subscription is not None else (),
            assignment=self._assigned_partitions() if protocol_name else {},
            rack=subscription.rack if subscription is not None else None,
            metadata_bytes=self.metadata(protocol_name) if protocol_name else b"",
            assignment_bytes=self.assignment if protocol_name else b"",
        )

    def _assigned_partitions(self) -> consumer_protocol.Partitions:
        if self.protocol_type != consumer_protocol.PROTOCOL_TYPE or not self.assignment:
            return {}
        try:
            return consumer_protocol.decode_assignment(self.assignment).partitions
        except MalformedRequest:
            return {}


def is_waiting(future: "asyncio.Future[JoinResult] | asyncio.Future[SyncResult] | None") -> bool:
    return future is not None and not future.done()


def new_member_id(prefix: str) -> str:
    """An id that its member can come back with: none is longer, or has a zero byte."""
    unique = f"-{new_uuid()}"
    return prefix.replace("\0", "")[: MAX_NAME_CHARS - len(unique)] + unique
