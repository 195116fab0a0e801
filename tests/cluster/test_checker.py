"""A checker that cannot fail proves nothing: each kind of violation is made by hand and found; a good run has none."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.checker import Verdict, check
from tests.cluster.evidence import CatalogueRow, PartitionEvidence, StoredLog, read_object, read_replica
from tests.cluster.history import (
    NO_OFFSET,
    HistoryWriter,
    Kind,
    Operation,
    Outcome,
    decode_value,
    encode_value,
    read_history,
    value_of,
)
from tests.cluster.violations import Violation
from tiered.formats.record_batch import Record, encode_batch

READER, GROUP = 7, 9


def batch(base_offset: int, values: Sequence[int], *, epoch: int = 1) -> bytes:
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
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)


def log(*batches: bytes, name: str = "a log") -> StoredLog:
    stored = StoredLog(name=name)
    for each in batches:
        stored.take(each, source="by hand")
    return stored


FIRST, SECOND = value_of(1, 0), value_of(1, 1)
OTHER = value_of(2, 0)
GOOD = (batch(0, [FIRST]), batch(1, [SECOND, OTHER]))


class Run:
    """A good run: three records on three replicas, sent, acknowledged, read and committed. Tests spoil one thing."""

    def __init__(self) -> None:
        self.evidence = PartitionEvidence(
            index=0, name="orders-0", replicas={each: log(*GOOD, name=f"broker {each}") for each in (1, 2, 3)}
        )
        self.history = [self.sent(FIRST, 0), self.sent(SECOND, 1), self.sent(OTHER, 2), self.seek(0)]
        self.history += [self.polled(0, FIRST), self.polled(1, SECOND), self.polled(2, OTHER)]

    def sent(self, value: int, offset: int, outcome: Outcome = Outcome.OK, kind: Kind = Kind.SEND) -> Operation:
        return Operation(kind, outcome, 1, 0, offset, value, 10, 20)

    def seek(self, offset: int, *, client: int = READER) -> Operation:
        return Operation(Kind.SEEK, Outcome.OK, client, 0, offset, 1, 25, 25)

    def polled(self, offset: int, value: int, *, client: int = READER) -> Operation:
        return Operation(Kind.POLL, Outcome.OK, client, 0, offset, value, 30, 40)

    def committed(
        self, offset: int, at: int, *, outcome: Outcome = Outcome.OK, assignment: int = 1, took: int = 1
    ) -> Operation:
        return Operation(Kind.COMMIT, outcome, GROUP, 0, offset, assignment, at, at + took)

    def fetched(self, offset: int, at: int) -> Operation:
        return Operation(Kind.FETCHED, Outcome.OK, GROUP, 0, offset, 0, at, at + 1)

    def verdict(self, watchers: Sequence[frozenset[int]] = (frozenset({READER}),)) -> Verdict:
        return check(self.history, [self.evidence], watchers)

    def violations(self) -> set[Violation]:
        return set(self.verdict().found.counts)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_good_run_has_no_violation(run: Run) -> None:
    run.history += [run.committed(2, 50), run.fetched(2, 60), run.committed(3, 70), run.fetched(3, 80)]
    verdict = run.verdict()
    assert not verdict.found, verdict.found.text()
    assert (verdict.acknowledged, verdict.polled, verdict.stored, verdict.commits) == (3, 3, 3, 2)


def test_an_acknowledged_write_that_is_gone_everywhere_is_lost(run: Run) -> None:
    run.history.append(run.sent(value_of(3, 0), 3))
    assert run.violations() == {Violation.LOST}


def test_a_write_that_was_acknowledged_with_a_later_one_is_somewhere_or_lost(run: Run) -> None:
    run.history[0] = run.sent(FIRST, NO_OFFSET)
    assert run.violations() == set()
    run.history.append(run.sent(value_of(3, 0), NO_OFFSET))
    assert run.violations() == {Violation.LOST}


def test_an_acknowledged_write_that_moved_is_lost(run: Run) -> None:
    run.history[0] = run.sent(FIRST, 2)
    assert Violation.LOST in run.violations()


def test_an_unknown_write_may_be_there_or_not(run: Run) -> None:
    run.history[1] = run.sent(SECOND, NO_OFFSET, Outcome.UNKNOWN)
    run.history.append(run.sent(value_of(3, 0), NO_OFFSET, Outcome.UNKNOWN))
    verdict = run.verdict()
    assert not verdict.found, verdict.found.text()
    assert (verdict.unknown, verdict.unknown_that_appeared) == (2, 1)


def test_a_write_that_failed_for_certain_must_not_appear(run: Run) -> None:
    run.history[1] = run.sent(SECOND, NO_OFFSET, Outcome.FAIL)
    assert run.violations() == {Violation.FAILED_APPEARS}


def test_a_value_that_stands_twice_is_a_duplicate(run: Run) -> None:
    for replica in run.evidence.replicas.values():
        replica.take(batch(3, [SECOND]), source="again")
    run.history.append(run.polled(3, SECOND))
    assert run.violations() == {Violation.DUPLICATE}


def test_a_producers_values_in_another_order_are_reordered(run: Run) -> None:
    swapped = (batch(0, [SECOND]), batch(1, [FIRST, OTHER]))
    run.evidence.replicas = {each: log(*swapped) for each in (1, 2, 3)}
    run.history = [run.sent(SECOND, 0), run.sent(FIRST, 1), run.sent(OTHER, 2)]
    run.history += [run.polled(0, SECOND), run.polled(1, FIRST), run.polled(2, OTHER)]
    assert run.violations() == {Violation.REORDERED}


def test_two_sends_acknowledged_at_one_offset_are_found(run: Run) -> None:
    run.history.append(run.sent(value_of(3, 0), 2))
    assert run.violations() == {Violation.TWO_VALUES, Violation.LOST}


def test_a_record_that_nobody_sent_is_a_stray(run: Run) -> None:
    del run.history[2]
    assert run.violations() == {Violation.STRAY}


def test_one_acknowledgement_promises_nothing_and_is_counted(run: Run) -> None:
    run.history.append(run.sent(value_of(3, 0), 3, kind=Kind.SEND_ACKS_1))
    verdict = run.verdict()
    assert not verdict.found, verdict.found.text()
    assert (verdict.acknowledged_acks_1, verdict.lost_acks_1) == (1, 1)


def test_offsets_that_are_nowhere_are_a_gap(run: Run) -> None:
    run.evidence.replicas = {each: log(GOOD[0], batch(2, [OTHER])) for each in (1, 2, 3)}
    assert Violation.GAP in run.violations()


def test_a_consumer_that_skips_an_offset_found_a_gap(run: Run) -> None:
    del run.history[5]
    assert run.violations() == {Violation.GAP, Violation.UNSEEN}


def test_a_read_that_is_no_longer_there_vanished(run: Run) -> None:
    run.history.append(run.polled(3, value_of(3, 0)))
    assert run.violations() == {Violation.VANISHED_READ}


def test_a_read_of_another_value_than_what_stays_vanished(run: Run) -> None:
    run.history[6] = run.polled(2, value_of(3, 0))
    assert run.violations() == {Violation.VANISHED_READ}


def test_a_poll_that_goes_back_is_not_monotonic_unless_the_consumer_was_moved(run: Run) -> None:
    run.history.append(run.polled(1, SECOND))
    assert run.violations() == {Violation.NON_MONOTONIC_POLL}
    run.history.insert(-1, run.seek(1))
    assert run.violations() == set()


def test_an_error_that_no_consumer_may_see_is_reported(run: Run) -> None:
    run.history.append(Operation(Kind.ERROR, Outcome.OK, READER, 0, 2, 1, 50, 50))
    assert run.violations() == {Violation.CONSUMER_ERROR}


def test_what_nobody_polled_after_healing_is_unseen(run: Run) -> None:
    del run.history[-1]
    assert run.violations() == {Violation.UNSEEN}


def test_members_of_a_group_see_every_record_together(run: Run) -> None:
    run.history[-1] = run.polled(2, OTHER, client=8)
    assert not run.verdict([frozenset({READER, 8})]).found
    assert run.verdict([frozenset({READER}), frozenset({8})]).found.counts == {Violation.UNSEEN: 2}


def test_a_committed_offset_that_goes_back_is_found(run: Run) -> None:
    run.history += [run.committed(1, 50), run.committed(2, 55), run.fetched(1, 60)]
    assert run.violations() == {Violation.COMMIT_WENT_BACK}


def test_a_committed_offset_that_is_forgotten_is_found(run: Run) -> None:
    run.history += [run.committed(2, 55), run.fetched(-1, 60)]
    assert run.violations() == {Violation.COMMIT_WENT_BACK}


def test_a_fetched_offset_that_goes_back_is_found_though_no_commit_was_acknowledged(run: Run) -> None:
    run.history += [run.committed(1, 50, outcome=Outcome.UNKNOWN), run.committed(2, 55, outcome=Outcome.UNKNOWN)]
    run.history += [run.fetched(2, 60), run.fetched(1, 70)]
    assert run.violations() == {Violation.COMMIT_WENT_BACK}


def test_an_unknown_commit_may_come_late_only_under_the_same_assignment(run: Run) -> None:
    run.history += [run.committed(1, 50, outcome=Outcome.UNKNOWN), run.committed(2, 55), run.fetched(1, 60)]
    assert run.violations() == set()
    run.history[-2] = run.committed(2, 55, assignment=2)
    assert run.violations() == {Violation.COMMIT_WENT_BACK}


def test_a_commit_that_was_under_way_may_be_missing(run: Run) -> None:
    run.history += [run.committed(1, 50), run.committed(2, 55, took=100), run.fetched(1, 60), run.fetched(2, 62)]
    assert run.violations() == set()


def test_an_offset_that_nobody_committed_is_found(run: Run) -> None:
    run.history += [run.committed(1, 50), run.fetched(3, 60)]
    assert run.violations() == {Violation.COMMIT_FROM_NOWHERE}


def test_replicas_with_other_bytes_at_an_offset_are_divergent(run: Run) -> None:
    run.evidence.replicas[2] = log(GOOD[0], batch(1, [SECOND, value_of(3, 0)]))
    assert run.violations() == {Violation.DIVERGENT}


def test_replicas_that_differ_in_leader_epoch_or_in_where_batches_begin_are_divergent(run: Run) -> None:
    run.evidence.replicas[2] = log(GOOD[0], batch(1, [SECOND, OTHER], epoch=2))
    assert run.violations() == {Violation.DIVERGENT}
    run.evidence.replicas[2] = log(GOOD[0], batch(1, [SECOND]), batch(2, [OTHER]))
    assert run.violations() == {Violation.DIVERGENT}


def test_a_replica_that_ends_elsewhere_after_healing_is_divergent(run: Run) -> None:
    run.evidence.replicas[3] = log(GOOD[0])
    assert run.violations() == {Violation.DIVERGENT}


def test_a_leader_epoch_that_goes_back_within_a_log_is_divergent(run: Run) -> None:
    back = (batch(0, [FIRST], epoch=2), batch(1, [SECOND, OTHER]))
    run.evidence.replicas = {each: log(*back) for each in (1, 2, 3)}
    assert run.violations() == {Violation.DIVERGENT}


def tiered(run: Run, *spans: tuple[int, int], cold_end_offset: int, content: Sequence[bytes] = GOOD) -> None:
    """Gives the run a catalogue with these rows, and the objects that belong to them."""
    run.evidence.cold_end_offset = cold_end_offset
    for base, end in spans:
        key = f"object-{base}"
        run.evidence.rows.append(CatalogueRow(base, end, 1, key, 100))
        held = [each for each in content if base <= log(each).start_offset < end]
        run.evidence.objects[key] = log(*held, name=key)


def test_both_tiers_of_a_good_run_agree(run: Run) -> None:
    tiered(run, (0, 1), (1, 3), cold_end_offset=3)
    assert run.violations() == set()
    run.evidence.replicas = {each: StoredLog(name="all cold") for each in (1, 2, 3)}
    assert run.violations() == set()


def test_an_object_with_other_bytes_than_the_replicas_is_found(run: Run) -> None:
    tiered(run, (0, 1), (1, 3), cold_end_offset=3, content=(GOOD[0], batch(1, [SECOND, value_of(3, 0)])))
    assert Violation.HOT_AND_COLD_DIFFER in run.violations()


def test_a_hole_in_the_catalogue_is_found(run: Run) -> None:
    tiered(run, (1, 3), cold_end_offset=3)
    assert run.violations() == {Violation.CATALOGUE_HOLE}
    other = Run()
    tiered(other, (0, 1), cold_end_offset=3)
    assert other.violations() == {Violation.CATALOGUE_HOLE}


def test_an_overlap_in_the_catalogue_is_found(run: Run) -> None:
    tiered(run, (0, 1), (0, 3), cold_end_offset=3)
    assert Violation.CATALOGUE_OVERLAP in run.violations()
    other = Run()
    tiered(other, (0, 1), (1, 3), cold_end_offset=1)
    assert other.violations() == {Violation.CATALOGUE_OVERLAP}


def test_an_object_that_is_missing_or_no_object_is_damage(run: Run) -> None:
    tiered(run, (0, 1), (1, 3), cold_end_offset=3)
    run.evidence.objects["object-1"] = read_object("object-1", None)
    assert run.violations() == {Violation.DAMAGED}
    run.evidence.objects["object-1"] = read_object("object-1", b"half an object")
    assert run.violations() == {Violation.DAMAGED}


def test_a_flipped_bit_in_a_replica_is_damage(run: Run, tmp_path: Path) -> None:
    whole = bytearray(b"".join(GOOD))
    (tmp_path / f"{0:020}.log").write_bytes(whole)
    run.evidence.replicas[1] = read_replica(tmp_path, "broker 1")
    assert run.violations() == set()
    whole[-5] ^= 1
    (tmp_path / f"{0:020}.log").write_bytes(whole)
    run.evidence.replicas[1] = read_replica(tmp_path, "broker 1")
    assert Violation.DAMAGED in run.violations()


def test_a_segment_that_does_not_begin_where_the_last_one_ended_is_damage(run: Run, tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.log").write_bytes(GOOD[0])
    (tmp_path / f"{2:020}.log").write_bytes(batch(2, [OTHER]))
    run.evidence.replicas[1] = read_replica(tmp_path, "broker 1")
    assert {Violation.DAMAGED, Violation.GAP} <= run.violations()


def test_the_history_comes_back_as_it_was_written(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history")
    operation = Operation(Kind.COMMIT, Outcome.UNKNOWN, 3, 2, -1, 77, 5, 6)
    writer.add(
        Kind.COMMIT, client=3, partition=2, started_us=5, ended_us=6, outcome=Outcome.UNKNOWN, offset=-1, value=77
    )
    writer.close()
    with (tmp_path / "history").open("ab") as file:
        file.write(b"torn")
    assert list(read_history(tmp_path / "history")) == [operation]


def test_values_are_told_from_each_other_and_damage_to_them_shows() -> None:
    data = encode_value(SECOND, padding_bytes=100)
    assert decode_value(data) == SECOND
    for wrong in (b"", data[:-8] + b"x" * 8, b"y" + data[1:]):
        with pytest.raises(ValueError, match="no producer of this run"):
            decode_value(wrong)
