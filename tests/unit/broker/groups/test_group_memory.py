"""What readers of committed offsets take of the groups' memory leaves room for members."""

import pytest

from tiered.account import Account, on_behalf_of
from tiered.broker.groups.memory import GroupMemory
from tiered.errors import CoordinatorNotAvailable


def test_who_has_a_share_is_refused_before_all_is_taken_and_others_are_not() -> None:
    memory = GroupMemory(lambda: 100)
    memory.take(50, share=0.5)
    with pytest.raises(CoordinatorNotAvailable):
        memory.take(1, share=0.5)
    assert memory.taken_bytes == 50
    memory.take(50)
    memory.take(-100, share=0.5)
    assert memory.taken_bytes == 0


def test_no_owner_has_more_than_is_free_so_that_others_have_room() -> None:
    memory = GroupMemory(lambda: 100)
    alice, bob = on_behalf_of(Account("alice"), memory.purse), on_behalf_of(Account("bob"), memory.purse)
    for _ in range(5):
        alice.take(10)
    with pytest.raises(CoordinatorNotAvailable, match="the groups of alice"):
        alice.take(1)
    on_behalf_of(Account("bob"), lambda: alice.take(-10))  # It is hers, whoever ends it.
    bob.take(25)
    with pytest.raises(CoordinatorNotAvailable):
        alice.take(1)
    memory.purse().take(30)  # Nobody's: a broker's own.
    with pytest.raises(CoordinatorNotAvailable, match="all the memory"):
        memory.purse().take(10)


def test_what_is_restored_is_nobodys_and_never_refused() -> None:
    memory = GroupMemory(lambda: 100)

    def restored() -> None:
        with memory.restoring():
            memory.purse().take(150)

    on_behalf_of(Account("alice"), restored)
    assert memory.taken_bytes == 150
    memory.take(-150)
    purse = on_behalf_of(Account("alice"), memory.purse)
    purse.take(50)
    with memory.converting():
        purse.take(50)
    assert memory.taken_bytes == 100
