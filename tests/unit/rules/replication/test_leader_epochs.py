"""Which leader epoch wrote which offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.replication.leader_epochs import LeaderEpochs

TABLE = LeaderEpochs(((2, 10), (4, 20), (7, 35)))


def test_epochs_are_assigned_in_order() -> None:
    assert LeaderEpochs().assign(2, 10).assign(4, 20).assign(7, 35) == TABLE
    assert TABLE.latest == 7
    assert LeaderEpochs().latest == -1


def test_assigning_the_newest_epoch_again_changes_nothing() -> None:
    assert TABLE.assign(7, 50) is TABLE


def test_a_lower_start_of_the_newest_epoch_replaces_it() -> None:
    assert TABLE.assign(7, 30).entries == ((2, 10), (4, 20), (7, 30))


def test_entries_of_leaders_whose_records_are_gone_are_dropped() -> None:
    assert TABLE.assign(5, 15).entries == ((2, 10), (5, 15))


def test_an_epoch_without_records_is_kept() -> None:
    table = TABLE.assign(8, 60).assign(9, 60)
    assert table.entries[-2:] == ((8, 60), (9, 60))
    assert table.end_offset_for(8, 99) == (8, 60)
    assert table.epoch_at(60) == 9


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (7, (7, 100)),
        (9, (7, 100)),
        (4, (4, 35)),
        (5, (4, 35)),
        (2, (2, 20)),
        (0, (0, 10)),
        (-1, (-1, -1)),
    ],
)
def test_end_offset_is_that_of_the_largest_known_epoch(epoch: int, answer: tuple[int, int]) -> None:
    assert TABLE.end_offset_for(epoch, 100) == answer


def test_an_empty_table_knows_no_end() -> None:
    assert LeaderEpochs().end_offset_for(3, 100) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 4), (34, 4), (35, 7), (1000, 7)])
def test_epoch_at_an_offset(offset: int, epoch: int) -> None:
    assert TABLE.epoch_at(offset) == epoch


def test_truncating_the_end_drops_epochs_that_start_there() -> None:
    assert TABLE.truncate_to_end(36) is TABLE
    assert TABLE.truncate_to_end(35).entries == ((2, 10), (4, 20))
    assert TABLE.truncate_to_end(0).entries == ()


def test_truncating_the_start_keeps_the_epoch_in_force() -> None:
    assert TABLE.truncate_to_start(5) is TABLE
    assert TABLE.truncate_to_start(10) is TABLE
    assert TABLE.truncate_to_start(25).entries == ((4, 25), (7, 35))
    assert TABLE.truncate_to_start(35).entries == ((7, 35),)
    assert TABLE.truncate_to_start(90).entries == ((7, 90),)


def test_covering_clips_to_the_segment_and_leaves_out_empty_epochs() -> None:
    assert TABLE.covering(12, 36) == ((2, 12), (4, 20), (7, 35))
    assert TABLE.covering(20, 35) == ((4, 20),)
    assert LeaderEpochs(((1, 0), (2, 5), (3, 5))).covering(0, 9) == ((1, 0), (3, 5))


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((), ((2, 10), (4, 20), (7, 35))),
        (((7, 40), (8, 50)), ((2, 10), (4, 20), (7, 35), (8, 50))),
        (((8, 50),), ((2, 10), (4, 20), (7, 35), (8, 50))),
        (((5, 30), (8, 50)), ((2, 10), (4, 20), (5, 30), (8, 50))),
        (((4, 15), (8, 50)), ((2, 10), (4, 15), (8, 50))),
        (((1, 0),), ((1, 0),)),
    ],
)
def test_a_newer_table_continues_and_corrects_an_older_one(
    entries: tuple[tuple[int, int], ...], expected: tuple[tuple[int, int], ...]
) -> None:
    assert TABLE.continued_by(entries).entries == expected


def test_a_table_out_of_order_is_a_bug_of_ours() -> None:
    with pytest.raises(AssertionError):
        LeaderEpochs(((3, 0), (2, 5)))


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), max_size=12),
    st.integers(0, 45),
    st.integers(0, 13),
)
def test_any_history_gives_an_ordered_table_whose_answers_rise(
    assigned: list[tuple[int, int]], cut: int, epoch: int
) -> None:
    table = LeaderEpochs()
    for new_epoch, start in assigned:
        table = table.assign(new_epoch, start)
        assert table.latest == new_epoch
    for changed in (table, table.truncate_to_end(cut), table.truncate_to_start(cut)):
        answers = [changed.end_offset_for(asked, 100) for asked in range(14)]
        assert answers == sorted(answers)
        for offset in range(46):
            epoch_there = changed.epoch_at(offset)
            if epoch_there >= 0:
                assert changed.end_offset_for(epoch_there, 100)[1] > offset
    assert all(start < cut for _, start in table.truncate_to_end(cut).entries)
    assert table.truncate_to_start(cut).epoch_at(cut) == table.epoch_at(cut)
