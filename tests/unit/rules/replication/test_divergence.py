"""Where two logs part: the scenarios of KIP-101 and KIP-279, and any two histories of elections.

A log is written as the epoch of each record, so "00112" has five records, the last of epoch 2.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.replication.divergence import divergence, last_fetched_epoch, truncation_offset
from tiered.rules.replication.leader_epochs import LeaderEpochs


def table(log: str) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, epoch in enumerate(log):
        if int(epoch) > epochs.latest:
            epochs = epochs.assign(int(epoch), offset)
    return epochs


def follow(follower: str, leader: str) -> tuple[str, int]:
    """(the follower's log when it may go on fetching, how often it was cut)"""
    for cuts in range(20):
        end = len(follower)
        found = divergence(
            table(leader),
            len(leader),
            fetch_offset=end,
            last_fetched_epoch=last_fetched_epoch(table(follower), end),
        )
        if found is None:
            return follower, cuts
        cut = truncation_offset(table(follower), end, found)
        assert cut < end, f"{follower} was not cut by {found} of {leader}"
        follower = follower[:cut]
    raise AssertionError("no end")


def test_a_follower_that_restarts_keeps_what_only_it_and_the_dead_leader_have() -> None:
    """KIP-101, scenario 1: cut to its high watermark it would have lost record 1, which was committed."""
    assert follow("00", "00") == ("00", 0)


def test_logs_that_parted_in_different_epochs_agree_again() -> None:
    """KIP-101, scenario 2: both lost their tails, and one wrote another record 1 in epoch 1."""
    assert follow("00", "01") == ("0", 1)


def test_unclean_leaders_one_after_the_other_leave_no_difference() -> None:
    """KIP-279: the follower's epoch is unknown to the leader, and the leader's to the follower."""
    assert follow("0011", "0022") == ("00", 1)
    assert follow("001133", "002244")[0] == "00"


def test_a_follower_ahead_of_its_leader_in_the_same_epoch_is_cut_to_it() -> None:
    assert follow("0001", "00") == ("00", 1)


def test_a_prefix_of_the_leaders_log_is_never_cut() -> None:
    assert follow("0012", "00123") == ("0012", 0)


def test_an_empty_log_has_nothing_to_cut() -> None:
    assert follow("", "0011") == ("", 0)


def test_a_leader_that_wrote_nothing_in_its_epoch_still_cuts_the_old_leaders_tail() -> None:
    epochs = table("00").assign(3, 2)
    found = divergence(epochs, 2, fetch_offset=4, last_fetched_epoch=1)
    assert found == (0, 2)


@pytest.mark.parametrize("length", [0, 3])
def test_a_follower_that_knows_no_epoch_is_not_said_to_diverge(length: int) -> None:
    assert divergence(table("000"), 3, fetch_offset=length, last_fetched_epoch=-1) is None


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, str]:
    """Two replicas' logs after elections among three, in any of which the leader may lack what others have."""
    logs = ["", "", ""]
    for epoch in range(draw(st.integers(1, 7))):
        leader = draw(st.integers(0, 2))
        logs[leader] += str(epoch) * draw(st.integers(0, 3))
        for follower in {0, 1, 2} - {leader}:
            if draw(st.booleans()):
                kept, _ = follow(logs[follower], logs[leader])
                logs[follower] = logs[leader][: draw(st.integers(len(kept), max(len(kept), len(logs[leader]))))]
    return logs[0], logs[1]


@given(histories())
def test_what_is_left_of_any_log_is_a_prefix_of_the_leaders(logs: tuple[str, str]) -> None:
    follower, leader = logs
    left, _ = follow(follower, leader)
    assert leader.startswith(left)


@given(histories())
def test_no_more_is_cut_than_what_differs(logs: tuple[str, str]) -> None:
    """A record that both logs have, written by the same leader at the same place, stays."""
    follower, leader = logs
    common = 0
    while common < min(len(follower), len(leader)) and follower[common] == leader[common]:
        common += 1
    left, _ = follow(follower, leader)
    assert len(left) == common
