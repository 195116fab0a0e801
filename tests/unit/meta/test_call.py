"""The race between a call and its deadline: an expired call is known not to be committed, or known to be unknown."""

import pytest

from tiered.meta.call import Call, DeadlinePassed


def test_a_call_that_expired_while_waiting_never_begins() -> None:
    call = Call(lambda _: None)
    assert call.expire() is False
    with pytest.raises(DeadlinePassed):
        call.begin()


def test_a_call_that_expired_before_its_commit_never_commits_and_loses_its_connection() -> None:
    cuts: list[str] = []
    call = Call(lambda _: None)
    call.begin()
    call.attach(lambda: cuts.append("cut"))
    assert call.expire() is False
    assert cuts == ["cut"]
    with pytest.raises(DeadlinePassed):
        call.begin_commit()


def test_a_call_that_expired_during_its_commit_may_have_been_committed() -> None:
    call = Call(lambda _: None)
    call.begin()
    call.begin_commit()
    assert call.expire() is True


def test_a_connection_that_went_back_to_the_pool_is_left_alone() -> None:
    cuts: list[str] = []
    call = Call(lambda _: None)
    call.begin()
    call.attach(lambda: cuts.append("cut"))
    call.detach()
    call.expire()
    assert cuts == []


def test_a_repeated_call_is_not_taken_for_one_that_commits() -> None:
    call = Call(lambda _: None)
    call.begin()
    call.begin_commit()
    call.begin()
    assert not call.committing
