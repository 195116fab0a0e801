"""When a disk counts as full, and when again as one with room."""

from tiered.rules.pacing.disk_room import DiskRoom

MIB = 1 << 20


def after(before: DiskRoom, usable_bytes: int, *, total_bytes: int = 10 << 30) -> DiskRoom:
    return before.after(total_bytes=total_bytes, usable_bytes=usable_bytes, reserve_bytes=4 * MIB)


def test_appends_end_below_a_mebibyte_and_begin_with_two_beside_the_reserve() -> None:
    assert after(DiskRoom(), MIB) == DiskRoom()
    low = after(DiskRoom(), MIB - 1)
    assert low == DiskRoom(is_low=True, is_short=True)
    assert after(low, 6 * MIB - 1).is_low
    assert not after(low, 6 * MIB).is_low


def test_others_lead_until_a_hundredth_of_the_disk_is_free_beside_the_reserve() -> None:
    short = after(after(DiskRoom(), 0), 6 * MIB)
    assert short == DiskRoom(is_low=False, is_short=True)
    assert after(short, 4 * MIB + (10 << 30) // 100 - 1).is_short
    assert after(short, 4 * MIB + (10 << 30) // 100) == DiskRoom()


def test_neither_a_small_nor_a_large_disk_waits_for_more_than_it_should() -> None:
    low = after(DiskRoom(), 0)
    assert after(low, 6 * MIB, total_bytes=32 * MIB) == DiskRoom()
    assert after(low, 260 * MIB, total_bytes=10 << 40) == DiskRoom()


def test_a_disk_that_was_never_low_is_not_short_however_full_it_is() -> None:
    assert after(DiskRoom(), 2 * MIB) == DiskRoom()
