"""How many searches a broker runs at once."""

from typing import cast

import pytest

from tests.unit.broker.context import SetClock
from tiered.broker.people.record_search import RecordSearches
from tiered.broker.tiering.tier_reader import TierReader
from tiered.errors import PolicyViolation, Throttled


def searches(most: int) -> RecordSearches:
    return RecordSearches(cast(TierReader, None), SetClock(), lambda: most)


async def test_no_more_searches_run_than_the_setting_says_parts_of_others_included() -> None:
    made = searches(2)
    async with made.place(is_part=False), made.place(is_part=True):
        with pytest.raises(Throttled, match=r"tiered\.http\.max\.searches"):
            async with made.place(is_part=False):
                pass
    assert made.running == 0
    async with made.place(is_part=False):
        assert made.running == 1


async def test_none_run_where_the_setting_is_zero() -> None:
    with pytest.raises(PolicyViolation, match=r"tiered\.http\.max\.searches"):
        async with searches(0).place(is_part=False):
            pass
