"""Which replicas to move where, so that brokers are emptied or carry alike: as few moves as do it.

Owns these plans, as targets for `reassignment`. Must never put two replicas of a partition on one rack where they
were on two, nor know who leads now: the first replica is the preferred leader, and a replica that moves keeps its
place in the order.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tiered.errors import InvalidReplicationFactor

Replicas = tuple[int, ...]
K = TypeVar("K", bound=Hashable)


def emptied(
    held: Mapping[K, Replicas],
    brokers: Sequence[tuple[int, str | None]],
    leaving: Collection[int],
    *,
    closed: Collection[int] = (),
) -> dict[K, Replicas]:
    """The targets of the partitions that `leaving` hold replicas of, so that they hold none.

    `brokers` are all with their racks; those that are `closed` keep what they have and are given nothing. Raises
    InvalidReplicationFactor where a partition has more replicas than brokers are left.
    """
    carried = _CarriedState.of(held, brokers)
    receivers = [broker_id for broker_id, _ in brokers if broker_id not in leaving and broker_id not in closed]
    targets = {key: list(replicas) for key, replicas in held.items() if not set(leaving).isdisjoint(replicas)}
    # Preferred leaders first: where they go is settled by who leads least, and followers even out who carries least.
    for with_leaders in (True, False):
        for key, target in targets.items():
            for position, broker_id in enumerate(held[key]):
                if broker_id not in leaving or (position == 0) != with_leaders:
                    continue
                open_to = [each for each in receivers if each not in target]
                if not open_to:
                    raise InvalidReplicationFactor(
                        f"a partition has {len(target)} replicas, and only {len(receivers)} brokers would be left to "
                        "take them: start another broker, or give the topic a smaller replication factor first"
                    )
                others = [each for each in target if each != broker_id]
                carried.move(broker_id, carried.best(open_to, others, position), position, target)
    return {key: tuple(target) for key, target in targets.items()}


def evened_out(held: Mapping[K, Replicas], brokers: Sequence[tuple[int, str | None]]) -> dict[K, Replicas]:
    """The targets of the partitions that move, so that no broker carries two replicas more than another one.

    Where racks forbid that, as near to it as single moves come.
    """
    carried = _CarriedState.of(held, brokers)
    now = {key: list(replicas) for key, replicas in held.items()}
    ids = [broker_id for broker_id, _ in brokers]
    share = -(-sum(carried.replicas[each] for each in ids) // max(1, len(ids)))
    # First those above their share give to those below it, which takes fewest moves, and leaderships go along only
    # where the giver has more of them. Racks can leave some uneven; whatever moves help then come last.
    for above, leaders_too in ((share, False), (share, True), (0, True)):
        while sum(_pass_on(replicas, carried, ids, above, any_place=leaders_too) for replicas in now.values()):
            pass
    return {key: tuple(target) for key, target in now.items() if tuple(target) != held[key]}


def _pass_on(replicas: list[int], carried: "_CarriedState", ids: Sequence[int], above: int, *, any_place: bool) -> int:
    """How many replicas of one partition went from brokers with more than `above` to ones with two less, or less."""
    moved = 0
    for position, giver in enumerate(replicas):
        load = carried.replicas[giver]
        if giver not in ids or load <= above:
            continue
        takers = [
            each
            for each in ids
            if carried.replicas[each] <= load - 2
            and (carried.replicas[each] < above or not above)
            and (any_place or (position == 0) == (carried.leaders[giver] > carried.leaders[each]))
            and each not in replicas
            and carried.keeps_racks_apart(replicas, giver, each)
        ]
        if takers:
            carried.move(giver, min(takers, key=lambda each: carried.replicas[each]), position, replicas)
            moved += 1
    return moved


@dataclass(slots=True, kw_only=True)
class _CarriedState:
    """Each broker's load while a plan is made."""

    racks: dict[int, Hashable]
    replicas: Counter[int] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, held: Mapping[K, Replicas], brokers: Sequence[tuple[int, str | None]]) -> "_CarriedState":
        return cls(
            racks={broker_id: broker_id if rack is None else rack for broker_id, rack in brokers},
            replicas=Counter(broker_id for replicas in held.values() for broker_id in replicas),
            leaders=Counter(replicas[0] for replicas in held.values()),
        )

    def rack(self, broker_id: int) -> Hashable:
        return self.racks.get(broker_id, broker_id)

    def best(self, open_to: Sequence[int], others: Sequence[int], position: int) -> int:
        """Where a replica beside `others` goes: to the rack with least of them, then to who carries least."""
        used = Counter(self.rack(each) for each in others)
        counts = self.leaders if position == 0 else self.replicas
        return min(open_to, key=lambda each: (used[self.rack(each)], counts[each], self.replicas[each], each))

    def keeps_racks_apart(self, replicas: Sequence[int], giver: int, taker: int) -> bool:
        used = Counter(self.rack(each) for each in replicas if each != giver)
        return used[self.rack(taker)] <= used[self.rack(giver)]

    def move(self, giver: int, taker: int, position: int, target: list[int]) -> None:
        target[position] = taker
        self.replicas[giver] -= 1
        self.replicas[taker] += 1
        if position == 0:
            self.leaders[giver] -= 1
            self.leaders[taker] += 1
