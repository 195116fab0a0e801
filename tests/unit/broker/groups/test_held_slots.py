"""What a broker believes to hold: whatever order it hears of changes in, the newest counts."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tiered.broker.groups.slots import HeldSlots
from tiered.meta.coordinator_slots import TENURE_BITS, SlotRow


def row(slot: int, holder: int, tenure: int, *, again: int = 0, broker_epoch: int = 1) -> SlotRow:
    return SlotRow(
        slot=slot,
        broker_id=holder,
        broker_epoch=broker_epoch,
        slot_epoch=(tenure << TENURE_BITS) + again,
        change_number=tenure,
    )


def learn(slots: HeldSlots, *rows: SlotRow) -> tuple[set[int], set[int]]:
    """As broker 1."""
    return slots.learn(rows, broker_id=1, broker_epoch=1)


def test_what_is_given_is_gained_and_what_is_taken_is_lost() -> None:
    slots = HeldSlots()
    assert learn(slots, row(0, 1, 1), row(1, 2, 1)) == (set(), {0})
    assert 0 in slots
    assert 1 not in slots
    assert learn(slots, row(0, 2, 2), row(1, 1, 2)) == ({0}, {1})
    assert slots.epochs == {1: 2 << TENURE_BITS}
    assert slots.tenure(0) is None
    assert slots.tenure(1) == 2


def test_hearing_it_again_changes_nothing() -> None:
    slots = HeldSlots()
    learn(slots, row(0, 1, 1))
    assert learn(slots, row(0, 1, 1)) == (set(), set())


def test_a_slot_that_its_holder_took_again_is_neither_lost_nor_gained() -> None:
    slots = HeldSlots()
    learn(slots, row(0, 1, 1))
    assert learn(slots, row(0, 1, 1, again=1)) == (set(), set())
    assert slots.epochs == {0: (1 << TENURE_BITS) + 1}
    assert learn(slots, row(0, 1, 1)) == (set(), set()), "late news"
    assert slots.epochs == {0: (1 << TENURE_BITS) + 1}


def test_a_slot_that_was_away_and_came_back_is_lost_and_gained() -> None:
    """Somebody else may have had its groups meanwhile, although nothing was heard of it."""
    slots = HeldSlots()
    learn(slots, row(0, 1, 1))
    assert learn(slots, row(0, 1, 3)) == ({0}, {0})


def test_a_former_process_of_the_same_broker_is_somebody_else() -> None:
    slots = HeldSlots()
    assert learn(slots, row(0, 1, 1, broker_epoch=9)) == (set(), set())
    assert 0 not in slots


def test_epochs_that_somebody_keeps_do_not_change_under_them() -> None:
    slots = HeldSlots()
    learn(slots, row(0, 1, 1))
    kept = slots.epochs
    learn(slots, row(0, 2, 2))
    assert kept == {0: 1 << TENURE_BITS}


HISTORY = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=30).map(
    lambda moves: [row(slot, holder, tenure + 1) for tenure, (slot, holder) in enumerate(moves)]
)


@given(st.data(), HISTORY)
def test_in_whatever_order_it_hears_of_them_it_holds_what_it_holds_in_the_end(
    data: st.DataObject, history: list[SlotRow]
) -> None:
    def held(rows: Iterable[SlotRow]) -> tuple[HeldSlots, set[int]]:
        slots, open_ = HeldSlots(), set[int]()
        for each in rows:
            lost, gained = learn(slots, each)
            assert lost <= open_
            open_ = (open_ - lost) | gained
        return slots, open_

    truth = {each.slot: each for each in history}
    slots, open_ = held(data.draw(st.permutations(history)))
    mine = {slot: each.slot_epoch for slot, each in truth.items() if each.broker_id == 1}
    assert slots.epochs == mine
    assert open_ == mine.keys(), "exactly the groups of these slots are open"
