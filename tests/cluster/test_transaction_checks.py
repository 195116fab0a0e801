"""Each broken promise about transactions is made by hand and found; a good run has none."""

import pytest

from tests.cluster.evidence import CatalogueRow, PartitionEvidence, StoredLog
from tests.cluster.history import Kind, Operation, Outcome, encode_value, transaction_value, value_of
from tests.cluster.transaction_checks import LoopGroup, TransactionsVerdict, check_transactions
from tests.cluster.violations import Violation
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker
from tiered.formats.record import Record
from tiered.formats.record_batch import encode_batch, stamp_offsets
from tiered.formats.segment_object import AbortedIndexEntry

INPUT_SENDER, LOOP, READER = 40, 41, 131
FIRST, SECOND, THIRD = 1, 2, 3
"""Attempts: the first is committed, the second aborted, the third commits what the second could not."""
PRODUCER_ID = 7


def batch(base_offset: int, *values: int, producer_id: int = PRODUCER_ID) -> bytes:
    records = [
        Record(
            offset=base_offset + number,
            timestamp_ms=1000,
            key=None,
            value=encode_value(value, padding_bytes=16),
            headers=(),
        )
        for number, value in enumerate(values)
    ]
    return encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def marker(base_offset: int, type_: MarkerType, *, producer_id: int = PRODUCER_ID) -> bytes:
    data = encode_marker(
        TransactionMarker(type=type_, coordinator_epoch=1), producer_id=producer_id, producer_epoch=0, timestamp_ms=1000
    )
    stamp_offsets(data, 0, base_offset, 1)
    return bytes(data)


def log(*batches: bytes, name: str = "a log") -> StoredLog:
    stored = StoredLog(name=name)
    for each in batches:
        stored.take(each, source="by hand")
    return stored


def made(attempt: int, number: int) -> int:
    return transaction_value(LOOP, attempt, number)


def output(*, ended: bool = True) -> list[bytes]:
    """Inputs 0 and 1 in a committed transaction, input 2 in an aborted one and then in a committed one."""
    batches = [
        batch(0, made(FIRST, 0), made(FIRST, 1)),
        marker(2, MarkerType.COMMIT),
        batch(3, made(SECOND, 2)),
        marker(4, MarkerType.ABORT),
        batch(5, made(THIRD, 2)),
    ]
    return [*batches, marker(6, MarkerType.COMMIT)] if ended else batches


class Run:
    """A good run of one loop with one input partition and two outputs, read to the end. Tests spoil one thing."""

    def __init__(self) -> None:
        sent = [value_of(INPUT_SENDER, number) for number in range(3)]
        self.inputs = evidence(0, "inputs", [batch(0, *sent, producer_id=-1)])
        self.first = evidence(0, "first", output())
        self.second = evidence(1, "second", output())
        self.committed_offset = 3
        self.history = [
            self.ended(Kind.COMMIT_TRANSACTION, FIRST, 2),
            self.ended(Kind.ABORT_TRANSACTION, SECOND, 1),
            self.ended(Kind.COMMIT_TRANSACTION, THIRD, 1),
        ]
        for partition in (0, 1):
            for offset, value in ((0, made(FIRST, 0)), (1, made(FIRST, 1)), (5, made(THIRD, 2))):
                self.history.append(self.polled(partition, offset, value))

    def ended(self, kind: Kind, attempt: int, inputs: int, outcome: Outcome = Outcome.OK) -> Operation:
        return Operation(kind, outcome, LOOP, 0, inputs, made(attempt, 0), 10, 20)

    def polled(self, partition: int, offset: int, value: int) -> Operation:
        return Operation(Kind.POLL, Outcome.OK, READER, partition, offset, value, 30, 30)

    def verdict(self) -> TransactionsVerdict:
        group = LoopGroup(clients=frozenset({LOOP}), committed_offsets={0: self.committed_offset})
        return check_transactions(self.history, [self.inputs], [self.first, self.second], [group], [READER])

    def violations(self) -> set[Violation]:
        return set(self.verdict().found.counts)


def evidence(index: int, name: str, batches: list[bytes]) -> PartitionEvidence:
    return PartitionEvidence(index=index, name=name, replicas={each: log(*batches) for each in (1, 2, 3)})


def stored(partition: PartitionEvidence, batches: list[bytes], *aborted: AbortedIndexEntry) -> None:
    """Puts these batches into an object, which says so of aborted transactions."""
    of_object = log(*batches, name="an object")
    of_object.aborted = aborted
    partition.objects["key"] = of_object
    partition.rows.append(CatalogueRow(of_object.start_offset, of_object.end_offset, 1, "key", 1))
    partition.cold_end_offset = of_object.end_offset


ABORTED = AbortedIndexEntry(producer_id=PRODUCER_ID, first_offset=3, last_offset=4, last_stable_offset=3)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_good_run_has_no_violation(run: Run) -> None:
    stored(run.first, output()[:4], ABORTED)
    verdict = run.verdict()
    assert not verdict.found, verdict.found.text()
    assert (verdict.commits, verdict.aborts, verdict.inputs, verdict.polled) == (2, 1, 3, 6)


def test_a_transaction_that_is_in_one_output_alone_is_half_a_transaction(run: Run) -> None:
    run.second = evidence(1, "second", [*output()[:4], batch(5, made(THIRD, 2)), marker(6, MarkerType.ABORT)])
    run.history = [each for each in run.history if each.kind is not Kind.COMMIT_TRANSACTION]
    assert Violation.HALF_A_TRANSACTION in run.violations()


def test_records_without_their_offsets_are_half_a_transaction(run: Run) -> None:
    run.committed_offset = 2
    assert run.violations() == {Violation.HALF_A_TRANSACTION}


def test_offsets_without_their_records_pass_an_input_over(run: Run) -> None:
    for partition in (run.first, run.second):
        partition.replicas = {each: log(*output()[:4]) for each in (1, 2, 3)}
    run.history = [each for each in run.history if each.offset != 5][:2]
    assert Violation.INPUT_NEVER in run.violations()


def test_an_acknowledged_commit_whose_records_were_aborted_is_lost(run: Run) -> None:
    run.history.append(run.ended(Kind.COMMIT_TRANSACTION, SECOND, 1))
    assert run.violations() == {Violation.COMMIT_LOST}


def test_an_acknowledged_abort_whose_records_were_committed_appears(run: Run) -> None:
    run.history.append(run.ended(Kind.ABORT_TRANSACTION, THIRD, 1))
    assert run.violations() == {Violation.ABORTED_APPEARS}


def test_an_unknown_outcome_may_be_either(run: Run) -> None:
    run.history[1] = run.ended(Kind.COMMIT_TRANSACTION, SECOND, 1, Outcome.UNKNOWN)
    run.history[2] = run.ended(Kind.COMMIT_TRANSACTION, THIRD, 1, Outcome.UNKNOWN)
    verdict = run.verdict()
    assert not verdict.found, verdict.found.text()
    assert (verdict.unknown, verdict.unknown_that_were_committed) == (2, 1)


def test_an_input_in_two_committed_transactions_was_processed_twice(run: Run) -> None:
    twice = [*output()[:3], marker(4, MarkerType.COMMIT), *output()[4:]]
    run.first, run.second = evidence(0, "first", twice), evidence(1, "second", twice)
    assert Violation.INPUT_TWICE in run.violations()


def test_inputs_out_of_order_are_reordered(run: Run) -> None:
    swapped = [batch(0, made(FIRST, 1), made(FIRST, 0)), *output()[1:]]
    run.first = evidence(0, "first", swapped)
    assert Violation.REORDERED in run.violations()


def test_records_without_a_marker_hang(run: Run) -> None:
    run.first = evidence(0, "first", output(ended=False))
    assert Violation.HANGING in run.violations()


def test_an_aborted_record_that_a_consumer_was_given_appears(run: Run) -> None:
    run.history.insert(5, run.polled(0, 3, made(SECOND, 2)))
    assert run.violations() == {Violation.ABORTED_APPEARS}


def test_a_record_that_a_consumer_was_given_and_that_is_nowhere_vanished(run: Run) -> None:
    run.history.append(run.polled(0, 9, made(THIRD, 9)))
    assert run.violations() == {Violation.VANISHED_READ}


def test_a_consumer_that_is_given_a_record_again_goes_back(run: Run) -> None:
    run.history.append(run.polled(1, 0, made(FIRST, 0)))
    assert run.violations() == {Violation.NON_MONOTONIC_POLL}


def test_a_committed_record_that_a_consumer_was_never_given_is_unseen(run: Run) -> None:
    run.history.pop()
    assert run.violations() == {Violation.UNSEEN}


def test_an_object_that_does_not_name_an_aborted_transaction_tells_other_records(run: Run) -> None:
    stored(run.first, output()[:4])
    assert run.violations() == {Violation.BUCKET_READER_DIFFERS}


def test_an_object_that_names_a_committed_transaction_tells_other_records(run: Run) -> None:
    committed = AbortedIndexEntry(producer_id=PRODUCER_ID, first_offset=0, last_offset=2, last_stable_offset=0)
    stored(run.first, output()[:4], committed, ABORTED)
    assert run.violations() == {Violation.BUCKET_READER_DIFFERS}


def test_a_record_of_what_is_no_input_is_a_stray(run: Run) -> None:
    run.inputs = evidence(0, "inputs", [batch(0, *(value_of(INPUT_SENDER, each) for each in (0, 1)), producer_id=-1)])
    run.committed_offset = 2
    assert run.violations() == {Violation.STRAY}
