"""Every byte of a tail is checked, and what is cut off asks for more or is refused."""

import pytest

from tests.golden import regenerate as golden
from tiered.errors import CorruptObject
from tiered.formats.segment_object import (
    TRAILER_BYTES,
    NeedMore,
    SectionKind,
    SegmentFooter,
    read_footer,
    read_tail,
)

OBJECT = golden.segment_object()
LOG_BYTES = len(golden.log())
TAIL = OBJECT[LOG_BYTES:]


def test_the_object_begins_with_the_segment_file() -> None:
    assert OBJECT[:LOG_BYTES] == golden.log()
    assert OBJECT[-8:] == b"TIERED01"


@pytest.mark.parametrize("pattern", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_of_a_tail_is_found(pattern: int) -> None:
    for at in range(len(TAIL)):
        changed = bytearray(TAIL)
        changed[at] ^= pattern
        with pytest.raises(CorruptObject):
            read_tail(changed, len(OBJECT))


def test_every_truncation_and_extension_of_the_object_is_found() -> None:
    for cut in range(1, len(TAIL)):
        with pytest.raises(CorruptObject):
            read_tail(TAIL[:-cut], len(OBJECT) - cut)
    for size in (len(OBJECT) - 1, len(OBJECT) + 1):
        with pytest.raises(CorruptObject):
            read_tail(TAIL, size)


def test_a_tail_without_its_beginning_asks_for_more_or_says_how_much_is_needed() -> None:
    for length in range(len(TAIL)):
        part = TAIL[len(TAIL) - length :]
        footer = read_footer(part, len(OBJECT))
        if isinstance(footer, NeedMore):
            assert length < footer.tail_bytes <= len(OBJECT)
        with pytest.raises(CorruptObject, match="needed"):
            read_tail(part, len(OBJECT))


def test_a_footer_needs_no_chunk_table() -> None:
    whole = read_footer(OBJECT, len(OBJECT))
    assert isinstance(whole, SegmentFooter)
    epochs = next(each for each in whole.sections if each.kind == SectionKind.LEADER_EPOCHS)
    assert read_footer(OBJECT[epochs.position :], len(OBJECT)) == whole
    assert read_footer(OBJECT[epochs.position + 1 :], len(OBJECT)) == NeedMore(tail_bytes=len(OBJECT) - epochs.position)


def test_more_than_the_tail_is_read_too() -> None:
    assert read_tail(OBJECT, len(OBJECT)) == read_tail(TAIL, len(OBJECT))


@pytest.mark.parametrize("size", [0, 1, TRAILER_BYTES - 1])
def test_an_object_smaller_than_a_trailer_is_none(size: int) -> None:
    with pytest.raises(CorruptObject):
        read_footer(bytes(size), size)


def test_the_tail_of_another_object_is_found_by_its_size() -> None:
    with pytest.raises(CorruptObject):
        read_tail(TAIL, len(OBJECT) + LOG_BYTES)


def test_more_bytes_than_the_object_has_are_refused() -> None:
    with pytest.raises(CorruptObject, match="were read"):
        read_footer(OBJECT, len(OBJECT) - 1)


def test_another_version_is_named() -> None:
    from tests.support.damaged_batches import with_right_crc

    footer_bytes = int.from_bytes(OBJECT[-16:-12], "big")
    footer = bytearray(OBJECT[-16 - footer_bytes : -16])
    footer[1] = 2
    with pytest.raises(CorruptObject, match="version 2"):
        read_tail(with_right_crc(OBJECT, bytes(footer)), len(OBJECT))


def test_the_root_depends_on_chunks_alone() -> None:
    assert golden.table().root_sha256 == read_tail(TAIL, len(OBJECT)).footer.root_sha256
    assert read_tail(TAIL, len(OBJECT)).footer.previous_root_sha256 == golden.PREVIOUS_ROOT
