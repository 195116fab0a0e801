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
    held: Mapping[K, Replicas], brokers: Sequence[tuple[int, str | None]], leaving: Collection[int]
) -> dict[K, Replicas]:
    """The targets of the partitions that `leaving` hold replicas of, so that they hold none.

    `brokers` are all that replicas may be put on, those that leave excepted, with their racks. Raises
    InvalidReplicationFactor where a partition has more replicas than brokers are left.
    """
    carried = _CarriedState.of(held, brokers)
    receivers = [broker_id for broker_id, _ in brokers if broker_id not in leaving]
    targets = {}
    for key, replicas in held.items():
        target = list(replicas)
        for position, broker_id in enumerate(replicas):
            if broker_id not in leaving:
                continue
            others = [each for each in target if each != broker_id]
            open_to = [each for each in receivers if each not in target]
            if not open_to:
                raise InvalidReplicationFactor(
                    f"a partition has {len(replicas)} replicas, and only {len(receivers)} brokers would be left to "
                    "hold them: add a broker, or give the topic a smaller replication factor first"
                )
            carried.move(broker_id, carried.best(open_to, others, position), position, target)
        if tuple(target) != replicas:
            targets[key] = tuple(target)
    return targets


def evened_out(held: Mapping[K, Replicas], brokers: Sequence[tuple[int, str | None]]) -> dict[K, Replicas]:
    """The targets of the partitions that move, so that no broker carries two replicas more than another one.

    Where racks forbid that, as near to it as single moves come.
    """
    carried = _CarriedState.of(held, brokers)
    now = {key: list(replicas) for key, replicas in held.items()}
    on_broker: dict[int, dict[K, None]] = {broker_id: {} for broker_id, _ in brokers}
    for key, replicas in held.items():
        for broker_id in replicas:
            on_broker.setdefault(broker_id, {})[key] = None
    while (found := _next_move(now, on_broker, carried, [broker_id for broker_id, _ in brokers])) is not None:
        key, giver, taker = found
        carried.move(giver, taker, now[key].index(giver), now[key])
        del on_broker[giver][key]
        on_broker[taker][key] = None
    return {key: tuple(target) for key, target in now.items() if tuple(target) != held[key]}


def _next_move(
    now: Mapping[K, list[int]], on_broker: Mapping[int, Mapping[K, None]], carried: "_CarriedState", brokers: list[int]
) -> tuple[K, int, int] | None:
    """The partition, the broker that carries most and the one that carries least of those between which it can move."""
    by_load = sorted(brokers, key=lambda each: (carried.replicas[each], each))
    for giver in reversed(by_load):
        for taker in by_load:
            if carried.replicas[giver] - carried.replicas[taker] < 2:
                break
            # A preferred leadership goes along where the giver has more of them, and stays where it has not.
            leads_more = carried.leaders[giver] > carried.leaders[taker]
            second_best: K | None = None
            for key in on_broker[giver]:
                if taker in now[key] or not carried.keeps_racks_apart(now[key], giver, taker):
                    continue
                if (now[key][0] == giver) == leads_more:
                    return key, giver, taker
                second_best = key if second_best is None else second_best
            if second_best is not None:
                return second_best, giver, taker
    return None


@dataclass(slots=True, kw_only=True)
class _CarriedState:
    """What each broker carries while a plan is made."""

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
