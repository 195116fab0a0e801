"""Indexes answer like a list that is searched from end to end, survive their files, and refuse what is none."""

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.formats.batches import mutations
from tiered.errors import CorruptFile
from tiered.formats.leader_epoch_file import decode_leader_epochs, encode_leader_epochs
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import ProducerBatch, ProducerEntry, decode_producers, encode_producers
from tiered.formats.time_index import TimeIndex

BASE = 2**40
small = st.integers(min_value=0, max_value=400)
entry_lists = st.lists(st.tuples(small, small), max_size=30).map(
    lambda pairs: list(zip(sorted({a for a, _ in pairs}), sorted({b for _, b in pairs}), strict=False))
)


def offset_index(entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(BASE + offset, position)
    return index


def time_index(entries: list[tuple[int, int]]) -> TimeIndex:
    index = TimeIndex()
    for timestamp_ms, offset in entries:
        index.append(timestamp_ms, BASE + offset)
    return index


@given(entry_lists, small, small)
def test_offset_index_finds_the_floor(entries: list[tuple[int, int]], offset: int, position: int) -> None:
    index = OffsetIndex.from_bytes(BASE, offset_index(entries).to_bytes(BASE))
    assert len(index) == len(entries)
    assert index.lookup(BASE + offset) == max((p for o, p in entries if o <= offset), default=0)
    assert index.floor_position(position) == max((p for _, p in entries if p <= position), default=0)
    assert index.last_position == max((p for _, p in entries), default=0)


@given(entry_lists, small)
def test_time_index_finds_the_floor(entries: list[tuple[int, int]], timestamp_ms: int) -> None:
    index = TimeIndex.from_bytes(BASE, time_index(entries).to_bytes(BASE))
    assert len(index) == len(entries)
    assert index.lookup(timestamp_ms) == max((BASE + o for t, o in entries if t <= timestamp_ms), default=-1)
    assert index.last_timestamp_ms == max((t for t, _ in entries), default=-1)


@given(entry_lists, small)
def test_truncation_leaves_entries_below_the_end(entries: list[tuple[int, int]], end: int) -> None:
    offsets, times = offset_index(entries), time_index([(p, o) for o, p in entries])
    offsets.truncate(BASE + end)
    times.truncate(BASE + end)
    kept = [(o, p) for o, p in entries if o < end]
    assert offsets.to_bytes(BASE) == offset_index(kept).to_bytes(BASE)
    assert times.to_bytes(BASE) == time_index([(p, o) for o, p in kept]).to_bytes(BASE)


@given(st.data(), entry_lists)
def test_hostile_index_files_are_refused_or_in_order(data: st.DataObject, entries: list[tuple[int, int]]) -> None:
    for kind, written in ((OffsetIndex, offset_index(entries)), (TimeIndex, time_index(entries))):
        hostile = data.draw(mutations(written.to_bytes(BASE)))
        try:
            assert kind.from_bytes(BASE, hostile).to_bytes(BASE) == hostile
        except CorruptFile:
            pass


epoch_lists = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=8).map(
    lambda pairs: tuple(zip(sorted({e for e, _ in pairs}), sorted(s for _, s in pairs), strict=False))
)


@given(epoch_lists)
def test_leader_epoch_files_are_read_as_written(entries: tuple[tuple[int, int], ...]) -> None:
    assert decode_leader_epochs(encode_leader_epochs(entries)) == entries


@given(st.data(), epoch_lists)
def test_hostile_leader_epoch_files_are_refused_or_canonical(
    data: st.DataObject, entries: tuple[tuple[int, int], ...]
) -> None:
    hostile = data.draw(mutations(encode_leader_epochs(entries)))
    try:
        assert encode_leader_epochs(decode_leader_epochs(hostile)) == hostile
    except CorruptFile:
        pass


sequences = st.integers(-1, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
producer_batches = st.builds(
    ProducerBatch,
    base_sequence=sequences,
    last_sequence=sequences,
    base_offset=offsets,
    last_offset=offsets,
    timestamp_ms=st.integers(-1, 2**63 - 1),
)
producer_entries = st.builds(
    ProducerEntry,
    producer_id=offsets,
    producer_epoch=st.integers(-1, 2**15 - 1),
    batches=st.lists(producer_batches, max_size=5).map(tuple),
    current_transaction_first_offset=st.none() | offsets,
    coordinator_epoch=st.integers(-1, 2**31 - 1),
)
snapshots = st.lists(producer_entries, max_size=6, unique_by=lambda entry: entry.producer_id)


@given(snapshots)
def test_producer_snapshots_are_read_as_written_whatever_the_order(entries: list[ProducerEntry]) -> None:
    data = encode_producers(entries)
    assert decode_producers(data) == tuple(sorted(entries, key=lambda entry: entry.producer_id))
    assert encode_producers(reversed(entries)) == data


@given(st.data(), snapshots)
def test_an_altered_producer_snapshot_is_refused(data: st.DataObject, entries: list[ProducerEntry]) -> None:
    written = encode_producers(entries)
    hostile = data.draw(mutations(written))
    try:
        assert decode_producers(hostile) == decode_producers(written)
        assert hostile == written
    except CorruptFile:
        pass
