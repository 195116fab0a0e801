"""Waits for the high watermark: over in the order of offsets, once each, and without a trace of who gave up."""

import gc
import weakref
from collections.abc import Callable

import pytest

from tiered.broker.partitions.acknowledgements import COMPACT_FROM, Acknowledgements, Commit
from tiered.errors import NotLeader

EPOCH = 4


def leading(high_watermark: int = 0) -> Acknowledgements:
    waits = Acknowledgements()
    waits.lead(EPOCH, high_watermark)
    return waits


def test_only_those_whose_records_are_committed_are_called_and_in_the_order_of_offsets() -> None:
    waits = leading()
    called: list[int] = []
    commits = [waits.begin(offset, EPOCH, lambda offset=offset: called.append(offset)) for offset in (7, 3, 5)]  # type: ignore[misc]
    waits.advance(5)
    assert called == [3, 5]
    assert [commit.is_over for commit in commits] == [False, True, True]
    waits.advance(7)
    assert called == [3, 5, 7]
    assert all(commit.error is None for commit in commits)


def test_one_who_left_is_not_called_and_is_forgotten_with_many_others() -> None:
    waits = leading()
    called: list[str] = []
    commits = [waits.begin(1, EPOCH, lambda: called.append("x")) for _ in range(COMPACT_FROM)]
    for commit in commits:
        waits.leave(commit)
    assert len(waits) < COMPACT_FROM // 2 + 1
    waits.advance(1)
    waits.fail(NotLeader("gone"))
    assert called == []


def test_lost_leadership_ends_every_wait_with_an_error_of_its_own() -> None:
    waits = leading()
    commits = [waits.begin(offset, EPOCH, lambda: None) for offset in (1, 2)]
    waits.fail(NotLeader("gone"))
    waits.advance(2)
    assert [str(commit.error) for commit in commits] == ["gone", "gone"]
    assert commits[0].error is not commits[1].error


def test_a_high_watermark_that_passed_before_the_wait_began_ends_it_at_once() -> None:
    waits, called = leading(high_watermark=3), list[str]()
    waits.advance(5)
    for end_offset in (3, 5):
        commit = waits.begin(end_offset, EPOCH, lambda: called.append("over"))
        assert (commit.is_over, commit.error) == (True, None)
    assert called == ["over", "over"]
    assert not waits.begin(6, EPOCH, lambda: called.append("over")).is_over
    assert len(waits) == 1


def test_a_leadership_that_ended_before_the_wait_began_is_an_error_though_the_offset_is_committed() -> None:
    waits, called = leading(high_watermark=5), list[str]()
    waits.fail(NotLeader("gone"))
    commit = waits.begin(5, EPOCH, lambda: called.append("over"))
    assert (commit.is_over, str(commit.error), called) == (True, "gone", ["over"])
    assert not waits.is_committed(5, EPOCH)


def test_a_leader_that_was_elected_again_does_not_answer_for_its_former_epoch() -> None:
    waits = leading(high_watermark=5)
    waits.fail(NotLeader("gone"))
    waits.lead(EPOCH + 2, 9)
    commit = waits.begin(5, EPOCH, lambda: None)
    assert str(commit.error) == "gone"
    assert not waits.is_committed(5, EPOCH)
    assert waits.is_committed(5, EPOCH + 2)


async def test_a_wait_that_is_over_when_it_begins_needs_no_time() -> None:
    waits = leading(high_watermark=5)
    assert await waits.reached(5, EPOCH, 0.0)
    with pytest.raises(NotLeader):
        await waits.reached(5, EPOCH - 1, 0.0)
    assert not await waits.reached(6, EPOCH, 0.0)


class Owner:
    """Holds its wait, which holds the owner's method."""

    def __init__(self, waits: Acknowledgements) -> None:
        self.commit = waits.begin(1, EPOCH, self.over)

    def over(self) -> None: ...


@pytest.mark.parametrize(
    "end",
    [
        lambda waits, commit: waits.advance(1),
        lambda waits, commit: waits.fail(NotLeader("gone")),
        lambda waits, commit: (waits.leave(commit), waits.advance(1)),
    ],
)
def test_a_wait_that_is_over_needs_no_garbage_collector(end: Callable[[Acknowledgements, Commit], object]) -> None:
    waits = leading()
    owner = Owner(waits)
    left = weakref.ref(owner)
    gc.disable()
    try:
        end(waits, owner.commit)
        del owner
        assert left() is None
    finally:
        gc.enable()
