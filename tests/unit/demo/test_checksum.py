"""The demo's checksum says the same of the same records in any order, and something else of any others."""

import dataclasses
import itertools
import random

import pytest

from demo.checksum import Checksum
from demo.flights import ALL_FLIGHTS, read_flights

RECORD = {"partition": 1, "offset": 2, "timestamp_ms": 3, "key": b"UA", "value": b"{}"}


def checksum_of(*records: dict[str, object]) -> Checksum:
    checksum = Checksum()
    for record in records:
        checksum.add_record(**record)  # type: ignore[arg-type]
    return checksum


def test_order_and_grouping_do_not_matter() -> None:
    records = [RECORD | {"offset": offset} for offset in range(50)]
    shuffled = random.Random(7).sample(records, k=50)
    assert checksum_of(*records) == checksum_of(*shuffled)
    assert checksum_of(*records) == checksum_of(*records[:20]) + checksum_of(*records[20:])


@pytest.mark.parametrize("field", RECORD)
def test_every_field_counts(field: str) -> None:
    other = RECORD | {field: b"other" if isinstance(RECORD[field], bytes) else 99}
    assert checksum_of(RECORD) != checksum_of(other)


def test_a_duplicate_is_seen() -> None:
    assert checksum_of(RECORD) != checksum_of(RECORD, RECORD)


@pytest.mark.slow
def test_all_flights_are_there_in_the_order_of_their_departure() -> None:
    flights = read_flights()
    assert len(flights) == ALL_FLIGHTS
    assert all(one.timestamp_ms <= next_.timestamp_ms for one, next_ in itertools.pairwise(flights))
    assert {len(flight.key) for flight in flights} == {2}
    assert dataclasses.asdict(flights[0])["value"].startswith(b'{"year":2013,')
