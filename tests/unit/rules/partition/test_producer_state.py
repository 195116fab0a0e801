"""What an idempotent producer may append, and what is a duplicate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import InvalidRequest, OutOfOrderSequence, StaleProducerEpoch
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.rules.partition.producer_state import (
    Accept,
    Duplicate,
    apply,
    check,
    check_marker,
    is_expired,
    next_sequence,
)
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

LAST_SEQUENCE = 2**31 - 1


def header(sequence: int, count: int = 1, *, epoch: int = 0, attributes: int = 0, time_ms: int = 5) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        size_bytes=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def after(*batches: BatchHeader) -> ProducerEntry | None:
    entry: ProducerEntry | None = None
    offset = 100
    for each in batches:
        entry = apply(entry, each, offset)
        offset += each.last_offset_delta + 1
    return entry


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert check(None, header(41)) == Accept()


def test_the_next_sequence_is_accepted() -> None:
    assert check(after(header(0, 3), header(3, 2)), header(5)) == Accept()


@pytest.mark.parametrize("sequence", [0, 4, 6, LAST_SEQUENCE])
def test_any_other_sequence_is_out_of_order(sequence: int) -> None:
    with pytest.raises(OutOfOrderSequence):
        check(after(header(0, 3), header(3, 2)), header(sequence, 9))


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    entry = after(header(LAST_SEQUENCE - 2, 3))
    assert entry is not None
    assert next_sequence(entry) == 0
    assert check(entry, header(0)) == Accept()
    with pytest.raises(OutOfOrderSequence):
        check(entry, header(1))


def test_a_batch_may_cross_the_largest_sequence() -> None:
    crossing = header(LAST_SEQUENCE, 3)
    assert crossing.last_sequence == 1
    entry = after(crossing)
    assert check(entry, header(2)) == Accept()
    assert isinstance(check(entry, crossing), Duplicate)


def test_each_of_the_last_five_batches_is_a_duplicate_with_its_first_offsets() -> None:
    batches = [header(2 * number, 2, time_ms=number) for number in range(7)]
    entry = after(*batches)
    for number in range(2, 7):
        assert check(entry, batches[number]) == Duplicate(
            base_offset=100 + 2 * number, last_offset=101 + 2 * number, timestamp_ms=number
        )
    for number in range(2):
        with pytest.raises(OutOfOrderSequence):
            check(entry, batches[number])


def test_the_same_first_sequence_with_another_count_is_no_duplicate() -> None:
    with pytest.raises(OutOfOrderSequence):
        check(after(header(0, 3)), header(0, 2))


def test_a_new_epoch_begins_at_zero() -> None:
    entry = after(header(0, 3))
    assert check(entry, header(0, epoch=1)) == Accept()
    with pytest.raises(OutOfOrderSequence):
        check(entry, header(3, epoch=1))


def test_an_older_epoch_is_fenced_even_for_duplicates() -> None:
    entry = after(header(0, 3), header(0, 1, epoch=1))
    with pytest.raises(StaleProducerEpoch):
        check(entry, header(0, 3))


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    entry = after(header(0, 3), header(0, 1, epoch=1))
    assert entry is not None
    assert [batch.base_offset for batch in entry.batches] == [103]


def test_a_transaction_opens_with_its_first_batch_and_ends_with_the_marker() -> None:
    transactional, marker = 0x10, 0x30
    entry = after(header(0, 3, attributes=transactional), header(3, 1, attributes=transactional))
    assert entry is not None
    assert entry.current_transaction_first_offset == 100
    ended = apply(entry, header(-1, attributes=marker), 104)
    assert ended.current_transaction_first_offset is None
    assert check(ended, header(4, attributes=transactional)) == Accept()


def test_a_marker_of_a_newer_epoch_fences_the_old_one_and_starts_at_zero() -> None:
    entry = apply(after(header(0, 3)), header(-1, epoch=1, attributes=0x30), 103)
    assert entry.batches == ()
    assert check(entry, header(0, epoch=1)) == Accept()
    with pytest.raises(OutOfOrderSequence):
        check(entry, header(3, epoch=1))
    with pytest.raises(StaleProducerEpoch):
        check(entry, header(3))


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "coordinator_epoch"),
    [(-1, 0, 0), (7, -1, 0), (7, 0, -2), (7, 0, 6), (7, 0, 2**31 - 1)],
)
def test_a_marker_that_no_coordinator_can_have_sent_is_refused(
    producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    marker = TransactionMarker(type=MarkerType.ABORT, coordinator_epoch=coordinator_epoch)
    with pytest.raises(InvalidRequest):
        check_marker(marker, ProducerIdAndEpoch(producer_id, producer_epoch), newest_tenure=5)


@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 4, 5])
def test_a_marker_of_any_coordinator_or_tool_is_not(coordinator_epoch: int) -> None:
    marker = TransactionMarker(type=MarkerType.ABORT, coordinator_epoch=coordinator_epoch)
    check_marker(marker, ProducerIdAndEpoch(0, 0), newest_tenure=5)


def test_an_open_transaction_never_expires() -> None:
    entry = after(header(0, attributes=0x10))
    assert entry is not None
    assert not is_expired(entry, last_append_ms=0, now_ms=10**15, expiration_ms=1)


def test_age_counts_from_the_append_and_not_from_old_timestamps() -> None:
    entry = after(header(0, time_ms=0))
    assert entry is not None
    assert not is_expired(entry, last_append_ms=1_000, now_ms=1_999, expiration_ms=1_000)
    assert is_expired(entry, last_append_ms=1_000, now_ms=2_000, expiration_ms=1_000)


@given(st.integers(0, LAST_SEQUENCE), st.lists(st.integers(1, 1_000_000), min_size=1, max_size=9))
def test_any_run_of_batches_is_accepted_once_and_then_known(first: int, counts: list[int]) -> None:
    entry: ProducerEntry | None = None
    sequence, offset = first, 0
    sent: list[tuple[BatchHeader, int]] = []
    for count in counts:
        batch = header(sequence, count)
        assert check(entry, batch) == Accept()
        entry = apply(entry, batch, offset)
        sent.append((batch, offset))
        sequence = (sequence + count) % 2**31
        offset += count
    for batch, base_offset in sent[-5:]:
        verdict = check(entry, batch)
        assert isinstance(verdict, Duplicate)
        assert (verdict.base_offset, verdict.last_offset) == (base_offset, base_offset + batch.last_offset_delta)
