"""Waits for the high watermark: over in the order of offsets, once each, and without a trace of who gave up."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from tiered.broker.partitions.acknowledgements import COMPACT_FROM, Acknowledgements, Commit
from tiered.errors import NotLeader

EPOCH = 4


@dataclass(slots=True)
class Leader:
    """What a wait looks at."""

    name: str = "t-0"
    high_watermark: int = 0
    leader_epoch: int = EPOCH
    leadership: object | None = "its own"


LEADER = Leader()


def test_a_wait_looks_when_it_begins_and_is_over_at_once_where_its_end_was_before() -> None:
    waits = Acknowledgements()
    called: list[str] = []
    leader = Leader(high_watermark=5)
    committed = waits.begin(leader, 5, EPOCH, lambda: called.append("committed"))
    assert (called, committed.is_over, committed.error) == (["committed"], True, None)
    waits.begin(leader, 6, EPOCH, lambda: called.append("not yet"))
    assert (called, len(waits)) == (["committed"], 1)
    for other in (
        Leader(leadership=None),
        Leader(leader_epoch=EPOCH + 1),
        Leader(high_watermark=9, leader_epoch=EPOCH + 2),
    ):
        lost = waits.begin(other, 5, EPOCH, lambda: called.append("lost"))
        assert isinstance(lost.error, NotLeader)
    assert called == ["committed", *["lost"] * 3]
    assert len(waits) == 1


def test_only_those_whose_records_are_committed_are_called_and_in_the_order_of_offsets() -> None:
    waits = Acknowledgements()
    called: list[int] = []
    commits = [waits.begin(LEADER, offset, EPOCH, partial(called.append, offset)) for offset in (7, 3, 5)]
    waits.advance(5)
    assert called == [3, 5]
    assert [commit.is_over for commit in commits] == [False, True, True]
    waits.advance(7)
    assert called == [3, 5, 7]
    assert all(commit.error is None for commit in commits)


def test_one_who_left_is_not_called_and_is_forgotten_with_many_others() -> None:
    waits = Acknowledgements()
    called: list[str] = []
    commits = [waits.begin(LEADER, 1, EPOCH, lambda: called.append("x")) for _ in range(COMPACT_FROM)]
    for commit in commits:
        waits.leave(commit)
    assert len(waits) < COMPACT_FROM // 2 + 1
    waits.advance(1)
    waits.fail(NotLeader("gone"))
    assert called == []


def test_lost_leadership_ends_every_wait_with_an_error_of_its_own() -> None:
    waits = Acknowledgements()
    commits = [waits.begin(LEADER, offset, EPOCH, lambda: None) for offset in (1, 2)]
    waits.fail(NotLeader("gone"))
    waits.advance(2)
    assert [str(commit.error) for commit in commits] == ["gone", "gone"]
    assert commits[0].error is not commits[1].error


class Owner:
    """Holds its wait, which holds the owner's method."""

    def __init__(self, waits: Acknowledgements) -> None:
        self.commit = waits.begin(LEADER, 1, EPOCH, self.over)

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
    waits = Acknowledgements()
    owner = Owner(waits)
    left = weakref.ref(owner)
    gc.disable()
    try:
        end(waits, owner.commit)
        del owner
        assert left() is None
    finally:
        gc.enable()
