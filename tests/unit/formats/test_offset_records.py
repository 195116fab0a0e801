"""Committed offsets in the schemas that lag exporters decode."""

import struct

from tiered.formats.offset_records import encode_offset_key, encode_offset_value


def test_a_key_names_group_topic_and_partition_in_version_1() -> None:
    assert encode_offset_key("billing", "orders", 7) == b"\0\1\0\7billing\0\6orders\0\0\0\7"


def test_a_value_has_offset_leader_epoch_metadata_and_time_in_version_3() -> None:
    head = b"\0\3" + struct.pack(">qi", 42, 5)
    assert encode_offset_value(42, 5, "note", 1_700_000_000_000) == head + b"\0\4note" + struct.pack(
        ">q", 1_700_000_000_000
    )
    assert encode_offset_value(-1, -1, "", 0) == b"\0\3" + struct.pack(">qihq", -1, -1, 0, 0)


def test_metadata_that_the_schema_cannot_hold_is_cut_at_a_whole_character() -> None:
    value = encode_offset_value(0, 0, "é" * 20_000, 0)
    (length,) = struct.unpack_from(">h", value, 14)
    assert value[16 : 16 + length].decode() == "é" * (0x7FFF // 2)
    assert len(value) == 16 + length + 8
