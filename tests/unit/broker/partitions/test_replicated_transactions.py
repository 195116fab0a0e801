"""Two replicas with transactions, whatever happens to them: consumers of either see each transaction whole or not."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.partition_appends import NOW_MS
from tests.support.transactions import end, write
from tests.unit.broker.replication.replicas import fetch, replica, restarted, row, tell
from tiered.broker.partitions.partition import Partition
from tiered.formats.control_record import MarkerType, read_marker
from tiered.formats.record_batch import whole_batches
from tiered.rules.partition.producer_state import next_sequence
from tiered.rules.replication.divergence import divergence, last_fetched_epoch, truncation_offset

RAISING = 2
"""The producer whose epoch rises with each end; the others keep theirs."""
PRODUCERS = st.integers(0, 2)


def stable_by_hand(partition: Partition) -> int:
    """The last stable offset, from a look at every batch of the log."""
    unstable: dict[int, int] = {}
    found = partition.high_watermark
    offset = 0
    while offset < partition.log.log_end_offset:
        part = partition.log.read(offset, 1 << 20, end_offset=partition.log.log_end_offset)
        assert part is not None
        data = part.read()
        for position, header in whole_batches(data, 0, len(data)):
            offset = header.end_offset
            if not header.is_control:
                unstable.setdefault(header.producer_id, header.base_offset)
            elif header.producer_id in unstable and read_marker(data, position, header) is not None:
                first = unstable.pop(header.producer_id)
                if header.base_offset >= partition.high_watermark:
                    found = min(found, first)
    return min([found, *unstable.values()])


def seen(partition: Partition, max_bytes: int) -> dict[int, int | None]:
    """What a read_committed consumer makes of the answers it gets, as clients do: of each offset the producer whose
    record it is given, or None where it is given nothing."""
    found: dict[int, int | None] = {}
    offset = 0
    while True:
        batches = partition.read_hot(offset, max_bytes, committed_only=True, at_least_one=True)
        if batches is None:
            return found
        waiting = sorted(batches.aborted, key=lambda each: each.first_offset)
        skipped: set[int] = set()
        data = batches.records.read()
        for _, header in whole_batches(data, 0, len(data)):
            while waiting and waiting[0].first_offset <= header.last_offset:
                skipped.add(waiting.pop(0).producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)
            hidden = header.is_control or header.producer_id in skipped
            found[header.base_offset] = None if hidden else header.producer_id
            offset = header.end_offset


class ReplicatedTransactions(RuleBasedStateMachine):
    """A clean cluster of two: both are in sync, so that either may lead. A producer's outcome is decided once, and then
    told to whoever leads until it is committed, as its coordinator does."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tiered-replicated-transactions-"))
        self.replicas: dict[int, Partition] = {}
        self.leader_id, self.epoch = 1, 0
        self.decided: dict[int, MarkerType] = {}
        self.waits: dict[int, int] = {}
        """Where the log ended after the marker of a decided producer, under this leader."""
        self.producer_epochs = {0: 0, 1: 0, RAISING: 0}
        self.told: dict[int, int | None] = {}
        self.stable = {1: 0, 2: 0}

    def teardown(self) -> None:
        for each in self.replicas.values():
            each.log.discard()
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        for broker_id in (1, 2):
            self.replicas[broker_id] = replica(self.folder, broker_id, segment_bytes=600, index_interval_bytes=0)
        self.lead(1)

    def lead(self, broker_id: int) -> None:
        self.leader_id = broker_id
        for each in self.replicas.values():
            tell(each, row(leader=broker_id, epoch=self.epoch, isr=(1, 2), replicas=(1, 2)))
        self.epoch += 1
        self.waits.clear()

    @property
    def leader(self) -> Partition:
        return self.replicas[self.leader_id]

    @property
    def follower(self) -> Partition:
        return self.replicas[3 - self.leader_id]

    @rule(producer_id=PRODUCERS)
    def write(self, producer_id: int) -> None:
        if producer_id in self.decided:
            return  # Its producer waits for the end.
        epoch = self.producer_epochs[producer_id]
        entry = self.leader.producers.entries.get(producer_id)
        is_next = entry is not None and entry.producer_epoch == epoch
        sequence = next_sequence(entry) if entry is not None and is_next else 0
        write(self.leader, producer_id, sequence, epoch=epoch)

    @rule(producer_id=PRODUCERS, kind=st.sampled_from(MarkerType))
    def end(self, producer_id: int, kind: MarkerType) -> None:
        kind = self.decided.setdefault(producer_id, kind)
        epoch = self.producer_epochs[producer_id] + (producer_id == RAISING)
        end(self.leader, producer_id, kind, epoch=epoch, raises_epoch=producer_id == RAISING)
        self.waits[producer_id] = self.leader.log.log_end_offset
        self.settle()

    def settle(self) -> None:
        for producer_id, end_offset in list(self.waits.items()):
            if end_offset <= self.leader.high_watermark:
                del self.waits[producer_id], self.decided[producer_id]
                self.producer_epochs[producer_id] += producer_id == RAISING

    @rule()
    def fetch(self) -> None:
        leader, follower = self.leader.log, self.follower.log
        epoch = last_fetched_epoch(follower.leader_epochs, follower.log_end_offset)
        found = divergence(
            leader.leader_epochs,
            leader.log_end_offset,
            fetch_offset=follower.log_end_offset,
            last_fetched_epoch=epoch,
        )
        if found is None:
            fetch(self.leader, self.follower)
        else:
            offset = truncation_offset(follower.leader_epochs, follower.log_end_offset, found)
            self.follower.begin_truncation()
            follower.truncate_to(offset)
            self.follower.log_truncated(follower.producers_at_end())
        self.settle()

    @rule()
    def roll(self) -> None:
        self.leader.log.roll(NOW_MS)

    @rule()
    def elect_the_other(self) -> None:
        self.lead(3 - self.leader_id)

    @rule(broker_id=st.integers(1, 2), is_clean=st.booleans())
    def restart(self, broker_id: int, is_clean: bool) -> None:
        before = self.replicas[broker_id]
        if not is_clean:
            before.log.discard()
        self.replicas[broker_id] = restarted(before, cold_end_offset=0)
        self.stable[broker_id] = 0
        self.lead(3 - broker_id)

    @invariant()
    def no_last_stable_offset_is_beyond_what_the_log_says_or_goes_back(self) -> None:
        for broker_id, each in self.replicas.items():
            found = each.last_stable_offset
            assert self.stable[broker_id] <= found <= stable_by_hand(each)
            self.stable[broker_id] = found

    @invariant()
    def consumers_are_told_the_same_by_everybody_for_ever(self) -> None:
        for each in self.replicas.values():
            for max_bytes in (100, 1 << 20):
                for offset, producer_id in seen(each, max_bytes).items():
                    assert self.told.setdefault(offset, producer_id) == producer_id

    @invariant()
    def what_a_replica_knows_is_what_its_log_says(self) -> None:
        for each in self.replicas.values():
            kept = {entry.producer_id: entry for entry in each.log.producers_at_end()}
            assert each.producers.entries == kept

    @rule()
    def catch_up(self) -> None:
        """Where nothing is open every record is stable in the end (X4)."""
        for _ in range(2 * self.epoch + 4):  # A cut for each epoch, at the most.
            self.fetch()
        entries = self.leader.producers.entries.values()
        if all(entry.current_transaction_first_offset is None for entry in entries):
            for each in self.replicas.values():
                assert each.last_stable_offset == self.leader.log.log_end_offset


ReplicatedTransactions.TestCase.settings = settings(
    max_examples=settings().max_examples,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestReplicatedTransactions = ReplicatedTransactions.TestCase
