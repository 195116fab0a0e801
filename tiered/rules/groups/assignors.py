"""The broker's assignors for consumer groups (KIP-848): `uniform` and `range`.

Owns the decision, as a function of subscriptions, partition counts and the assignment before. Every partition of a
subscribed topic goes to exactly one member that subscribes to it; both assignors move as little as they can, and
give the same answer when nothing has changed. Pure, and quick for thousands of partitions.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tiered.errors import UnsupportedAssignor
from tiered.ids import TopicId

Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions of several topics. No topic stands there without a partition."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})
UNIFORM: Final = "uniform"
RANGE: Final = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """One member as an assignor sees it: `topics` that exist, and what the last target gave it."""

    topics: frozenset[TopicId]
    had: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    instance_id: str | None = None


Members = Mapping[str, Subscriber]
Counts = Mapping[TopicId, int]
Assignor = Callable[[Members, Counts], dict[str, Partitions]]


def assign(name: str, members: Members, counts: Counts) -> dict[str, Partitions]:
    """The partitions of each member; `counts` has each existing topic's number of partitions.

    Topics without a count are ignored. Raises UnsupportedAssignor.
    """
    return assignor(name)(members, counts)


def assignor(name: str) -> Assignor:
    """The assignor of this name, or UnsupportedAssignor."""
    found = _ASSIGNORS.get(name)
    if found is None:
        raise UnsupportedAssignor(f"assignor {name[:80]!r} is not served; use one of {', '.join(_ASSIGNORS)}")
    return found


def names() -> tuple[str, ...]:
    """The assignors of this broker, the default first."""
    return tuple(_ASSIGNORS)


# uniform


class _Share:
    """One member's partitions so far."""

    __slots__ = ("count", "held")

    def __init__(self) -> None:
        self.held: defaultdict[TopicId, set[int]] = defaultdict(set)
        self.count = 0

    def take(self, topic: TopicId, partition: int) -> None:
        self.held[topic].add(partition)
        self.count += 1

    def give(self, topic: TopicId, partition: int) -> None:
        self.held[topic].discard(partition)
        self.count -= 1

    def partitions(self) -> Partitions:
        return {topic: frozenset(held) for topic, held in self.held.items() if held}


def uniform(members: Members, counts: Counts) -> dict[str, Partitions]:
    """As many partitions to each member as to every other, whatever their topics.

    With equal subscriptions the numbers differ by one at most, and no partition moves that need not. With
    different ones no single partition could be moved to a member that would still have fewer than its owner.
    """
    shares = {member_id: _Share() for member_id in sorted(members)}
    subscribers = _subscribers(members, counts)
    free = _keep(members, {topic: counts[topic] for topic in subscribers}, shares)
    queues: dict[int, list[tuple[int, str]]] = {}
    # Topics with the fewest subscribers first: the others have more members left to even things out with.
    for topic in sorted(free, key=lambda topic: (len(subscribers[topic]), topic)):
        among = subscribers[topic]
        queue = queues.get(id(among))
        if queue is None:
            queue = queues[id(among)] = [(shares[member_id].count, member_id) for member_id in among]
            heapq.heapify(queue)
        for partition in sorted(free[topic]):
            count, member_id = queue[0]
            while count != shares[member_id].count:
                # It has got more through another queue: its entry goes down to where it belongs.
                heapq.heapreplace(queue, (shares[member_id].count, member_id))
                count, member_id = queue[0]
            shares[member_id].take(topic, partition)
            heapq.heapreplace(queue, (count + 1, member_id))
    if len({subscriber.topics for subscriber in members.values()}) == 1:
        _even_out_alike(shares)
    else:
        _even_out(shares, subscribers)
    return {member_id: share.partitions() for member_id, share in shares.items()}


def _keep(members: Members, counts: Counts, shares: dict[str, _Share]) -> dict[TopicId, set[int]]:
    """Lets every member keep what it had and still subscribes to; the partitions that nobody keeps."""
    free = {topic: set(range(count)) for topic, count in counts.items()}
    for member_id, share in shares.items():
        subscriber = members[member_id]
        for topic, partitions in subscriber.had.items():
            if topic not in subscriber.topics or topic not in free:
                continue
            for partition in sorted(partitions & free[topic]):
                share.take(topic, partition)
            free[topic] -= partitions
    return free


def _subscribers(members: Members, counts: Counts) -> dict[TopicId, list[str]]:
    """The subscribers of each topic, in order. Topics with the same ones have the same list.

    In most groups all members subscribe to the same topics: equal subscriptions are looked at once.
    """
    alike: dict[frozenset[TopicId], list[str]] = {}
    for member_id, subscriber in members.items():
        alike.setdefault(subscriber.topics, []).append(member_id)
    parts: dict[TopicId, list[int]] = {}
    for number, topics in enumerate(alike):
        for topic in topics:
            if counts.get(topic, 0) > 0:
                parts.setdefault(topic, []).append(number)
    names = list(alike.values())
    merged: dict[tuple[int, ...], list[str]] = {}
    found: dict[TopicId, list[str]] = {}
    for topic, numbers in parts.items():
        among = merged.get(key := tuple(numbers))
        if among is None:
            among = merged[key] = sorted(name for number in numbers for name in names[number])
        found[topic] = among
    return found


def _even_out_alike(shares: dict[str, _Share]) -> None:
    """Moves partitions from the fullest member to the emptiest until they differ by one at most."""
    fullest = [(-share.count, member_id) for member_id, share in shares.items()]
    emptiest = [(share.count, member_id) for member_id, share in shares.items()]
    heapq.heapify(fullest)
    heapq.heapify(emptiest)
    while True:
        # Each move changes one entry at the top of each heap; an entry that the other heap has outdated stays
        # below a member that is fuller (emptier) by then, and is corrected when it gets to the top.
        high, giver = fullest[0]
        if -high != shares[giver].count:
            heapq.heapreplace(fullest, (-shares[giver].count, giver))
            continue
        low, taker = emptiest[0]
        if low != shares[taker].count:
            heapq.heapreplace(emptiest, (shares[taker].count, taker))
            continue
        if -high - low < 2:
            return
        _move(shares[giver], shares[taker], _last_topic(shares[giver]))


def _last_topic(share: _Share) -> TopicId:
    """The topic of which the member has most: giving from it spreads a topic over members as well."""
    return max((topic for topic, held in share.held.items() if held), key=lambda topic: (len(share.held[topic]), topic))


def _even_out(shares: dict[str, _Share], subscribers: dict[TopicId, list[str]]) -> None:
    """Moves partitions within each topic's subscribers until no single move evens anything out.

    It ends: each move makes the sum of the squares of the counts smaller.
    """
    moved = True
    while moved:
        moved = False
        for topic in sorted(subscribers):
            among = subscribers[topic]
            while True:
                owners = [member_id for member_id in among if shares[member_id].held.get(topic)]
                giver = shares[max(owners, key=lambda member_id: shares[member_id].count)]
                taker = shares[min(among, key=lambda member_id: shares[member_id].count)]
                if giver.count - taker.count < 2:
                    break
                _move(giver, taker, topic)
                moved = True


def _move(giver: _Share, taker: _Share, topic: TopicId) -> None:
    partition = max(giver.held[topic])
    giver.give(topic, partition)
    taker.take(topic, partition)


# range


def range_(members: Members, counts: Counts) -> dict[str, Partitions]:
    """Neighbouring partitions of each topic to each member; the first members get one more where they don't divide.

    Topics with equally many partitions and the same subscribers are cut alike, so that whoever joins two such
    topics has equal keys in one member. Members stay in the order of what they had, newcomers come last.
    """
    subscribers = _subscribers(members, counts)
    alike: dict[tuple[int, int], set[TopicId]] = {}
    for topic, among in subscribers.items():
        alike.setdefault((counts[topic], id(among)), set()).add(topic)
    found: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in members}
    for (count, _), topics in alike.items():
        sharing = subscribers[next(iter(topics))]
        in_order = sorted(sharing, key=lambda member_id: _place(member_id, members[member_id], topics))
        size, more = divmod(count, len(in_order))
        start = 0
        for index, member_id in enumerate(in_order):
            end = start + size + (index < more)
            if end > start:
                cut = frozenset(range(start, end))
                found[member_id].update((topic, cut) for topic in topics)
            start = end
    return dict(found)


def _place(member_id: str, subscriber: Subscriber, topics: Container[TopicId]) -> tuple[int, int, str, str]:
    """Where a member stands: by its first partition so far; else after the others, by its instance id or its id."""
    first = min((min(had) for topic, had in subscriber.had.items() if topic in topics), default=-1)
    return int(first < 0), first, subscriber.instance_id or member_id, member_id


_ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({UNIFORM: uniform, RANGE: range_})
