"""A KIP-848 member's heartbeat and its answer.

Owns the two values and the check that a heartbeat does not contradict itself. Pure; `consumer_group` decides what it
does to the group.
"""

from dataclasses import dataclass
from typing import Final

from tiered.errors import InvalidRequest
from tiered.rules.groups import assignors
from tiered.rules.groups.assignors import Partitions
from tiered.rules.groups.consumer_member import JOIN, LEAVE_FOR_A_WHILE
from tiered.rules.security.principal import Principal

UNCHANGED_MS: Final = -1
MAX_NAME_CHARS: Final = 1024
"""Of member ids and instance ids."""
MAX_TOPICS: Final = 10_000
"""That one member subscribes to by name; there are patterns for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """None is "as before"; so is a `rebalance_timeout_ms` of -1. An empty pattern is none."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: Principal | None = None
    host: str = ""
    rebalance_timeout_ms: int = UNCHANGED_MS
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None

    @property
    def is_full(self) -> bool:
        """The member tells everything: it joins, or does not know what of its last heartbeat has arrived."""
        says_topics = self.topics is not None or self.pattern is not None
        return self.epoch == JOIN or (
            self.rebalance_timeout_ms != UNCHANGED_MS and says_topics and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """`assignment` is all that the member may use from now on, or None for "as before"."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None = None


def check_count(topics: int) -> None:
    """Returns when a member may subscribe to so many by name. Raises InvalidRequest."""
    if topics > MAX_TOPICS:
        raise InvalidRequest(f"a member subscribes to {MAX_TOPICS} topics by name at most; use a pattern")


def check(heartbeat: Heartbeat) -> None:
    """Raises InvalidRequest, or UnsupportedAssignor, for what can never be right."""
    epoch = heartbeat.epoch
    if epoch < LEAVE_FOR_A_WHILE:
        raise InvalidRequest(f"member epoch {epoch}: 0 joins, -1 leaves, -2 leaves for a while, others are given")
    if not heartbeat.member_id:
        raise InvalidRequest("the member id is empty; make a UUID once in the life of the process")
    for what, text in (
        ("member id", heartbeat.member_id),
        ("instance id", heartbeat.instance_id),
        ("rack", heartbeat.rack),
    ):
        if text is not None and (not text or len(text) > MAX_NAME_CHARS):
            raise InvalidRequest(f"the {what} has 1 to {MAX_NAME_CHARS} characters; null means none")
    if epoch == LEAVE_FOR_A_WHILE and heartbeat.instance_id is None:
        raise InvalidRequest("only static members leave with epoch -2; send the instance id, or leave with epoch -1")
    if heartbeat.topics is not None:
        check_count(len(heartbeat.topics))
    if epoch > JOIN and heartbeat.rebalance_timeout_ms != UNCHANGED_MS and heartbeat.rebalance_timeout_ms <= 0:
        # Kafka takes it. Stored with the group, it would keep the next coordinator from reading any of its members.
        raise InvalidRequest(
            f"a rebalance time-out of {heartbeat.rebalance_timeout_ms} ms; it is above 0, or -1: as before"
        )
    if epoch == JOIN:
        _check_join(heartbeat)
    if heartbeat.assignor is not None:
        assignors.assignor(heartbeat.assignor)


def _check_join(heartbeat: Heartbeat) -> None:
    if heartbeat.rebalance_timeout_ms <= 0:
        raise InvalidRequest("whoever joins says its rebalance time-out, in milliseconds above 0")
    if heartbeat.owned is None or heartbeat.owned:
        raise InvalidRequest("whoever joins owns nothing: give up all partitions, and send an empty list of them")
    if heartbeat.topics is None and heartbeat.pattern is None:
        raise InvalidRequest("whoever joins says what it subscribes to: topics by name, or a pattern")
