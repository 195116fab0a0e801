"""Three replicas through elections, cuts and slow followers: the log that a restore gives the lead has all that was
ever acknowledged. A model of the replication's rules, in which the database is lost at the end."""

import random
from dataclasses import dataclass, field

from tests.support.checkpointed import disk_log
from tiered.rules.replication.divergence import divergence, last_fetched_epoch, truncation_offset
from tiered.rules.replication.leader_epochs import LeaderEpochs
from tiered.rules.segments.restored_logs import ReplicaLog, begins_unseen, choose

BROKERS = (1, 2, 3)
STEPS = 60
HISTORIES = 3_000


@dataclass(slots=True)
class Replica:
    log: list[int] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    word: tuple[int, int] | None = None
    """On its disk, of an epoch that it began as leader, and where: no record may ever tell of it."""

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs = self.epochs.truncate_to_end(offset)


class History:
    """What happened to one partition, and what of it was acknowledged."""

    def __init__(self, seed: int, *, steps: int = STEPS) -> None:
        self.random = random.Random(seed)
        self.replicas = {broker_id: Replica() for broker_id in BROKERS}
        self.isr = set(BROKERS)
        self.epoch = -1
        self.leader = 0
        self.fetched: dict[int, int] = {}
        """How far each replica is, as the leader of this epoch knows."""
        self.values = 0
        self.acknowledged: list[int] = []
        self.elect()
        for _ in range(steps):
            self.random.choice(
                (self.append, self.append, self.fetch, self.fetch, self.fetch, self.shrink, self.maybe_elect)
            )()

    def elect(self, leader: int | None = None, *, former_goes: bool | None = None) -> None:
        former = self.leader
        candidates = sorted(self.isr - {former}) or sorted(self.isr)
        self.leader = leader or self.random.choice(candidates)
        self.epoch += 1
        if former and former != self.leader:
            self.replicas[former].epochs = self.replicas[former].epochs.truncate_to_end(len(self.replicas[former].log))
            if self.random.random() < 0.5 if former_goes is None else former_goes:
                self.isr.discard(former)
            else:
                self.replicas[former].word = None  # It follows.
        its = self.replicas[self.leader]
        if begins_unseen(
            its.epochs, leader_epoch=self.epoch, log_end_offset=len(its.log), high_watermark=len(self.acknowledged)
        ):
            its.word = (self.epoch, len(its.log))
        its.epochs = its.epochs.assign(self.epoch, len(its.log))
        self.fetched = {self.leader: len(its.log)}
        self.commit()

    def maybe_elect(self) -> None:
        if self.random.random() < 0.3:
            self.elect()

    def append(self, count: int | None = None) -> None:
        for _ in range(count or self.random.randint(1, 3)):
            self.values += 1
            self.replicas[self.leader].log.append(self.values)
        self.fetched[self.leader] = len(self.replicas[self.leader].log)
        self.commit()

    def fetch(self, follower: int | None = None, *, count: int | None = None) -> None:
        follower = follower or self.random.choice([broker_id for broker_id in BROKERS if broker_id != self.leader])
        its, of_leader = self.replicas[follower], self.replicas[self.leader]
        its.word = None
        most = self.random.randint(0, 4) if count is None else count
        while True:
            end = len(its.log)
            last_epoch = last_fetched_epoch(its.epochs, end)
            found = divergence(of_leader.epochs, len(of_leader.log), fetch_offset=end, last_fetched_epoch=last_epoch)
            if found is None:
                break
            its.cut(truncation_offset(its.epochs, end, found))
        for offset in range(len(its.log), min(len(of_leader.log), len(its.log) + most)):
            its.epochs = its.epochs.assign(of_leader.epochs.epoch_at(offset), offset)
            its.log.append(of_leader.log[offset])
        self.fetched[follower] = len(its.log)
        if len(its.log) >= len(self.acknowledged):
            self.isr.add(follower)
        self.commit()

    def shrink(self) -> None:
        """The leader takes somebody out who is slow."""
        slow = [broker_id for broker_id in self.isr if broker_id != self.leader]
        if slow and self.random.random() < 0.4:
            self.isr.discard(self.random.choice(slow))
            self.commit()

    def commit(self) -> None:
        high_watermark = min(self.fetched.get(broker_id, 0) for broker_id in self.isr)
        if high_watermark > len(self.acknowledged):
            committed = self.replicas[self.leader].log[:high_watermark]
            assert committed[: len(self.acknowledged)] == self.acknowledged, "the model keeps what it acknowledged"
            self.acknowledged = committed

    def disks(self, *, with_word: bool = True) -> list[ReplicaLog]:
        """Without word no disk knows an epoch in which nothing was written."""
        replicas = []
        for broker_id, its in self.replicas.items():
            epochs = its.epochs.truncate_to_end(len(its.log))
            if with_word and its.word is not None and its.word[0] > epochs.latest and its.word[1] == len(its.log):
                epochs = epochs.assign(*its.word)
            replicas.append(ReplicaLog(broker_id=broker_id, log=disk_log(len(its.log), epochs.entries)))
        return replicas

    def has_all(self, broker_id: int) -> bool:
        return self.replicas[broker_id].log[: len(self.acknowledged)] == self.acknowledged


def test_the_log_that_leads_has_all_that_was_acknowledged() -> None:
    for seed in range(HISTORIES):
        history = History(seed)
        leading = choose(history.disks(), cold_end_offset=0, cold_leader_epoch=-1).leading
        assert leading is not None
        assert history.has_all(leading.broker_id), f"seed {seed}"


def test_a_leader_that_changes_twice_without_a_record_is_further_than_one_whose_records_nobody_has() -> None:
    history = History(0, steps=0)
    first = history.leader
    second, slow = (broker_id for broker_id in BROKERS if broker_id != first)
    history.append(8)
    history.fetch(second, count=8)
    history.fetch(slow, count=6)
    assert len(history.acknowledged) == 6
    history.elect(slow, former_goes=False)
    history.append(4)  # Which nobody fetches.
    history.elect(first, former_goes=True)
    history.fetch(second, count=0)
    assert len(history.acknowledged) == 8, "those of before are visible now, and nothing was written"
    history.elect(second, former_goes=False)
    leading = choose(history.disks(), cold_end_offset=0, cold_leader_epoch=-1).leading
    assert leading is not None
    assert history.has_all(leading.broker_id)


def test_neither_the_longest_log_would_do_nor_the_furthest_without_epochs_that_wrote_nothing() -> None:
    """So the histories are ones in which the rule matters."""
    longest = without = 0
    for seed in range(HISTORIES):
        history = History(seed)
        longest += not history.has_all(max(history.disks(), key=lambda its: its.log.log_end_offset).broker_id)
        without += not history.has_all(max(history.disks(with_word=False), key=lambda its: its.log.reach).broker_id)
    assert longest > 0
    assert without > 0
