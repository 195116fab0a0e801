"""What an API does with very many names that a request has."""

import random

import pytest

from tiered.runtime import without_repeats
from tiered.server.kafka.api.describe_topic_partitions import SORTED_AT_ONCE, _in_order


@pytest.mark.parametrize("count", [0, 1, SORTED_AT_ONCE, 2 * SORTED_AT_ONCE + 500])
async def test_names_are_put_in_order_some_at_a_time(count: int) -> None:
    names = [f"topic-{number:05}" for number in range(count)]
    mixed = random.Random(count).sample(names, count)
    assert list(await _in_order(mixed)) == names


def test_a_name_that_stands_twice_counts_where_it_comes_first() -> None:
    assert list(without_repeats(iter(["b", "a", "b", "c", "a"]))) == ["b", "a", "c"]
