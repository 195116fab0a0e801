"""Offsets that a transaction sends whose coordinator is another broker than the group's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.clients.raw import RawConnection
from tests.components.brokers import Brokers, three_brokers
from tests.support.transactional_producer import UNSTABLE, TransactionalProducer, stored
from tiered.meta import coordinator_slots
from tiered.rules.groups.coordinator_slot import coordinator_slot

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]
SLOTS = 50


@pytest.fixture(scope="module")
def brokers(postgres_databases: "PostgresDatabases", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with three_brokers(postgres_databases, tmp_path_factory.mktemp("cluster"), {}) as made:
        made.wait(lambda: set(holders(made).values()) == {1, 2, 3}, "the slots are shared")
        made.create("orders", 2)
        yield made


def holders(brokers: Brokers) -> dict[int, int]:
    """The broker that holds each slot."""
    rows = brokers.database.run_sync(coordinator_slots.load_all)
    return {slot: row.broker_id for slot, row in rows.items()}


def name_of(brokers: Brokers, broker_id: int) -> str:
    """A fresh id, of a group or a producer, that this broker coordinates."""
    held = holders(brokers)
    return next(name for _ in range(10_000) if held[coordinator_slot(name := str(uuid4()), SLOTS)] == broker_id)


@pytest.mark.parametrize("version", [3, 5])
def test_the_groups_coordinator_takes_offsets_of_a_transaction_that_another_broker_ends(
    brokers: Brokers, version: int
) -> None:
    group = name_of(brokers, 2)
    with RawConnection(brokers.by_id[1]) as one, RawConnection(brokers.by_id[2]) as two:
        producer = TransactionalProducer(one, version, name_of(brokers, 1))
        for offset in (5, 6):
            producer.begin(group)
            assert producer.send(group, "orders", {0: offset}, via=two) == {0: 0}
            assert stored(two, group, "orders", 0) == {0: (UNSTABLE, -1)}
            producer.end(commits=True)
            assert stored(two, group, "orders", 0, 1) == {0: (0, offset), 1: (0, -1)}
