"""The log in memory that `__consumer_offsets` is read from: offsets only grow, and each key has its newest record."""

from collections.abc import Mapping

from tiered.broker.groups.offset_log import MAX_RECORDS_A_READ, MAX_TOMBSTONES, LoggedValue, OffsetLog
from tiered.formats.record_batch import records

START = 7 << 32


def told(log: OffsetLog, offset: int = 0, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None, bytes | None]]:
    data = log.read(offset, max_bytes, at_least_one=True)
    return [(each.offset - START, each.key, each.value) for each in records(data)] if data else []


def become(log: OffsetLog, state: Mapping[bytes, tuple[bytes, int]]) -> None:
    log.append(log.differences({key: LoggedValue(*written) for key, written in state.items()}))


def test_what_was_committed_first_is_told_first_and_only_what_changed_is_told_again() -> None:
    log = OffsetLog(START)
    become(log, {b"b": (b"1", 20), b"a": (b"1", 10)})
    assert told(log) == [(0, b"a", b"1"), (1, b"b", b"1")]
    become(log, {b"b": (b"1", 20), b"a": (b"2", 30)})
    assert told(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert (log.start_offset, log.end_offset) == (START + 1, START + 3)


def test_whoever_comes_with_an_offset_that_is_gone_goes_on_with_the_next_record() -> None:
    log = OffsetLog(START)
    become(log, {b"a": (b"1", 10), b"b": (b"1", 20)})
    become(log, {b"a": (b"2", 30), b"b": (b"1", 20)})
    assert told(log, START) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert told(log, START + 2) == [(2, b"a", b"2")]
    assert told(log, START + 3) == []


def test_what_is_gone_from_sql_is_told_as_a_tombstone_and_may_come_back() -> None:
    log = OffsetLog(START)
    become(log, {b"a": (b"1", 10), b"b": (b"1", 20)})
    become(log, {b"b": (b"1", 20)})
    become(log, {b"b": (b"1", 20)})
    assert told(log) == [(1, b"b", b"1"), (2, b"a", None)]
    become(log, {b"a": (b"1", 10), b"b": (b"1", 20)})
    assert told(log) == [(1, b"b", b"1"), (3, b"a", b"1")]


def test_the_oldest_of_many_tombstones_are_forgotten() -> None:
    log = OffsetLog(START)
    become(log, {b"%d" % number: (b"1", number) for number in range(MAX_TOMBSTONES + 5)})
    become(log, {})
    assert log.start_offset == log.end_offset - MAX_TOMBSTONES


def test_memory_holds_the_newest_records_alone_however_often_they_change() -> None:
    log = OffsetLog(START)
    become(log, {b"a": (b"0", 0), b"b": (b"0", 0)})
    first = log.size_bytes
    for number in range(5 * MAX_TOMBSTONES):
        become(log, {b"a": (b"%04d" % number, number), b"b": (b"0", 0)})
    assert log.size_bytes == first + 3
    assert len(log._offsets) <= MAX_TOMBSTONES + 5
    assert told(log, START + 5) == [(5 * MAX_TOMBSTONES + 1, b"a", b"4999")]


def test_a_read_keeps_to_its_bytes_but_for_the_first_record_of_an_answer() -> None:
    log = OffsetLog(START)
    become(log, {b"%d" % number: (b"x" * 100, number) for number in range(10)})
    assert [offset for offset, _, _ in told(log, max_bytes=61 + 2 * 121)] == [0, 1]
    assert [offset for offset, _, _ in told(log, max_bytes=1)] == [0]
    assert log.read(START, 1, at_least_one=False) == b""


def test_a_read_has_a_bound_and_the_next_one_goes_on() -> None:
    log = OffsetLog(START)
    become(log, {b"%d" % number: (b"1", number) for number in range(MAX_RECORDS_A_READ + 1)})
    first = told(log)
    assert len(first) == MAX_RECORDS_A_READ
    assert len(told(log, START + first[-1][0] + 1)) == 1


def test_records_are_found_by_the_time_of_their_commit() -> None:
    log = OffsetLog(START)
    assert (log.offset_at(0), log.newest()) == (None, None)
    become(log, {b"a": (b"1", 10), b"b": (b"1", 20)})
    assert log.offset_at(11) == (START + 1, 20)
    assert log.offset_at(21) is None
    assert log.newest() == (START + 1, 20)
