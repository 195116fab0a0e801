"""Members of classic groups by hand: one connection each, and every request of theirs in any version."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tiered.wire import messages
from tiered.wire.consumer_protocol import Subscription, encode_subscription

JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, FIND = 11, 12, 13, 14, 15, 16, 42, 10
METADATA = encode_subscription(Subscription(topics=("some-topic",)))


class Member:
    """What a client would do, step by step. `join` and `sync` may be begun, and their answers fetched later."""

    def __init__(
        self,
        broker: BrokerProcess,
        group_id: str,
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 10_000,
    ) -> None:
        self.broker = broker
        self.group_id = group_id
        self.version = version
        self.instance_id = instance_id
        self.protocols = dict(protocols or {"range": METADATA})
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.connection = RawConnection(broker, timeout_s=60.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id != ""

    # JoinGroup

    def begin_join(self) -> None:
        namespace = messages.request(JOIN, self.version)
        request = namespace.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout=self.session_timeout_ms,
            rebalance_timeout=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[
                namespace.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()
            ],
            reason="a test",
        )
        self.connection.send(JOIN, self.version, messages.encode(request))

    def end_join(self) -> Any:
        answer = messages.response_decoder(JOIN, self.version)(self.connection.receive(JOIN, self.version)[1], 0)
        if answer.error_code in (0, 79):
            self.member_id = answer.member_id
        if answer.error_code == 0:
            self.generation, self.leader = answer.generation_id, answer.leader
        return answer

    def ask_join(self) -> Any:
        """The answer to one JoinGroup."""
        self.begin_join()
        return self.end_join()

    def get_id(self) -> None:
        """From version 4 the first JoinGroup only gives an id."""
        if self.version >= 4 and self.instance_id is None and not self.member_id:
            assert self.ask_join().error_code == 79

    def join(self) -> Any:
        """The answer to the JoinGroup that makes it a member."""
        self.get_id()
        answer = self.ask_join()
        assert answer.error_code == 0, answer
        return answer

    # The others

    def begin_sync(self, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> None:
        version = min(self.version, 5)
        namespace = messages.request(SYNC, version)
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": None,
            "protocol_name": None,
            "assignments": [
                namespace.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ],
        }
        self.connection.send(SYNC, version, messages.encode(namespace.SyncGroupRequest(**(fields | changes))))

    def end_sync(self) -> Any:
        version = min(self.version, 5)
        return messages.response_decoder(SYNC, version)(self.connection.receive(SYNC, version)[1], 0)

    def sync(self, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> Any:
        self.begin_sync(assignments, **changes)
        return self.end_sync()

    def heartbeat(self, **changes: Any) -> int:
        """The error code."""
        version = min(self.version, 4)
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        request = messages.request(HEARTBEAT, version).HeartbeatRequest(**(fields | changes))
        return int(self.connection.ask(HEARTBEAT, version, request).error_code)

    def leave(self, *members: tuple[str, str | None]) -> Any:
        """Itself, or (from version 3) those named by member id and instance id."""
        version = min(self.version, 5)
        namespace = messages.request(LEAVE, version)
        named = members or ((self.member_id, self.instance_id),)
        request = namespace.LeaveGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            members=[
                namespace.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=None)
                for member_id, instance_id in named
            ]
            if version >= 3
            else [],
        )
        return self.connection.ask(LEAVE, version, request)


def join_together(*members: Member) -> Member:
    """The leader, once all of `members` have joined one generation; nobody has synced yet."""
    for member in members:
        member.get_id()
    for member in members:
        member.begin_join()
    answers = [member.end_join() for member in members]
    assert {answer.error_code for answer in answers} == {0}, answers
    assert len({answer.generation_id for answer in answers}) == 1
    return next(member for member in members if member.is_leader)


def rebalance(
    *members: Member, assignments: Callable[[Member], bytes] = lambda member: member.member_id.encode()
) -> Member:
    """All of `members` join at the same time and sync; each is assigned its own id. Returns the leader."""
    leader = join_together(*members)
    for member in members:
        if member is not leader:
            member.begin_sync()
    found = {leader.member_id: leader.sync({each.member_id: assignments(each) for each in members})}
    found |= {member.member_id: member.end_sync() for member in members if member is not leader}
    for member in members:
        answer = found[member.member_id]
        assert (answer.error_code, answer.assignment) == (0, assignments(member))
    return leader


def describe(broker: BrokerProcess, group_id: str, *, version: int = 6) -> Any:
    with RawConnection(broker) as connection:
        request = messages.request(DESCRIBE, version).DescribeGroupsRequest(
            groups=[group_id], include_authorized_operations=False
        )
        return connection.ask(DESCRIBE, version, request).groups[0]


def groups(
    broker: BrokerProcess, *, version: int = 5, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> Any:
    """group id -> its line"""
    with RawConnection(broker) as connection:
        request = messages.request(LIST, version).ListGroupsRequest(states_filter=states, types_filter=types)
        answer = connection.ask(LIST, version, request)
        assert answer.error_code == 0
        return {each.group_id: each for each in answer.groups}


def delete(broker: BrokerProcess, *group_ids: str, version: int = 2) -> list[int]:
    with RawConnection(broker) as connection:
        request = messages.request(DELETE, version).DeleteGroupsRequest(groups_names=group_ids)
        return [int(each.error_code) for each in connection.ask(DELETE, version, request).results]


class Alive:
    """Sends heartbeats for `members` from a thread, so that only others expire."""

    def __init__(self, *members: Member) -> None:
        self._members = members
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            for member in self._members:
                member.heartbeat()
