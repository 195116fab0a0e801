"""What readers of committed offsets take of the groups' memory leaves room for members."""

import pytest

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
