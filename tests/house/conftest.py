"""What the tests of the house share."""

from collections.abc import Iterator

import pytest

from tests.house.sources import parsed


@pytest.fixture(scope="session", autouse=True)
def no_tree_is_left() -> Iterator[None]:
    """At its end an interpreter looks at all that is left, several times: half a million nodes took five seconds."""
    yield
    parsed.cache_clear()
