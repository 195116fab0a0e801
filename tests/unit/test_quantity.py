"""Durations and sizes of configs, as people write them."""

import pytest

from tiered.config.quantity import in_plain_units
from tiered.errors import InvalidConfig


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("local.retention.ms", "12h", "43200000"),
        ("segment.ms", "90s", "90000"),
        ("flush.ms", "15m", "900000"),
        ("flush.ms", "250ms", "250"),
        ("log.retention.ms", "2w", "1209600000"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("log.segment.bytes", "64MiB", "67108864"),
        ("retention.bytes", "2TiB", "2199023255552"),
        ("max.message.bytes", "512KiB", "524288"),
        ("max.message.bytes", "100B", "100"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "604800000", "604800000"),
        ("retention.ms", "soon", "soon"),
        ("cleanup.policy", "7d", "7d"),
    ],
)
def test_units_become_the_number_that_is_stored(name: str, text: str, number: str) -> None:
    assert in_plain_units(name, text) == number


@pytest.mark.parametrize(("name", "text"), [("retention.ms", "7D"), ("retention.ms", "1GiB"), ("segment.bytes", "1G")])
def test_another_unit_is_refused_with_those_there_are(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"{name}={text} is not allowed: write a whole number, or one with "):
        in_plain_units(name, text)
