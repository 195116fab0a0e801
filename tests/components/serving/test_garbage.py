"""What requests leave behind for the garbage collector, which stops everybody while it looks at what there is."""

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.clients.raw import RawConnection
from tests.components.rights_table import ABSENT, KNOWN, ROWS, Row
from tiered.testing import cluster

TIMES = 10


@dataclass(slots=True)
class Door:
    kafka_port: int


@pytest.fixture(scope="module", params=["anybody", "nobody"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """Of a broker that lets everybody do all, and of one that lets nobody do anything."""
    is_open = request.param == "anybody"
    with cluster(settings={} if is_open else {"tiered.authorizer": "acl", "super.users": "User:admin"}) as c:
        if is_open:
            c.create_topic(KNOWN)
        # What is there by now is nobody's garbage: the collector and the counts pass over it, in a tenth of the time.
        gc.collect()
        gc.freeze()
        yield Door(int(c.bootstrap.rpartition(":")[2]))
        gc.unfreeze()


def exceptions() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, Exception))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_refusal_leaves_nothing_for_the_collector(door: Door, row: Row) -> None:
    """Neither of a topic that is there or not nor of one that cannot be, and neither with the rights nor without."""
    bodies = [row.body(name) for name in (KNOWN, ABSENT, "")]
    with RawConnection(door) as connection:
        for body in bodies:  # What is made once is made.
            connection.call(row.key, row.version, body)
        gc.collect()
        gc.disable()
        try:
            before = exceptions()
            for body in bodies * TIMES:
                connection.call(row.key, row.version, body)
            left = exceptions() - before
        finally:
            gc.enable()
    assert left.total() < TIMES / 2, left
