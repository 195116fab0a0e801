"""How the files that a process may open are shared out."""

import pytest

from tiered.errors import InvalidConfig
from tiered.open_files import for_connections, require_enough


@pytest.mark.parametrize(
    ("most", "log_count", "connections"), [(1_000, 0, 750), (1_000, 500, 400), (65_536, 1_000, 49_152), (100, 90, 1)]
)
def test_connections_leave_a_quarter_and_a_file_for_each_log(most: int, log_count: int, connections: int) -> None:
    assert for_connections(most, log_count) == connections


def test_a_limit_that_leaves_nothing_for_the_stores_is_refused_and_a_low_one_is_warned_of() -> None:
    with pytest.raises(InvalidConfig, match=r"149 files open, and this broker needs 150 .* LimitNOFILE="):
        require_enough(149, 100)
    assert "leaves 1 for connections beside 100 logs" in str(require_enough(150, 100))
    assert require_enough(1_024, 100) is None
