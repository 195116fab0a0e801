"""The simulated database server: unknown outcomes that happened, happen late, or never do."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.simulation.database import Catalogue, SimDatabase, SqlServer
from tests.simulation.loop import Process, SimLoop
from tests.simulation.network import SQL, Network
from tiered.errors import MetadataOutcomeUnknown, MetadataUnavailable
from tiered.meta import cluster
from tiered.meta.clock import database_now_ms


@pytest.fixture(scope="module")
def catalogue() -> Iterator[Catalogue]:
    catalogue = Catalogue()
    yield catalogue
    catalogue.close()


@pytest.fixture
def server(loop: SimLoop, catalogue: Catalogue) -> SqlServer:
    server = SqlServer(loop, Random(1), Network(loop, Random(2)), catalogue)
    loop.run_until_complete(_database(server).run(lambda conn: cluster.ensure(conn, cluster_id="c", now_ms=0)))
    return server


def _database(server: SqlServer, name: str = "b1") -> SimDatabase:
    return SimDatabase(server, name, Process(server._loop, name))


def _number(server: SqlServer) -> int:
    (number,) = server.catalogue.driver.execute("SELECT change_number FROM cluster").fetchone()
    return int(number)


def test_a_transaction_is_committed_in_virtual_time(loop: SimLoop, server: SqlServer) -> None:
    assert loop.run_until_complete(_database(server).run(cluster.take_number)) == 1
    assert 0 < loop.time() < 0.5
    now_ms = loop.run_until_complete(_database(server).read(database_now_ms))
    assert abs(now_ms - server.now_ms()) < 100


def test_what_cannot_be_reached_changes_nothing(loop: SimLoop, server: SqlServer) -> None:
    server._network.cut("b1", SQL)
    with pytest.raises(MetadataUnavailable) as caught:
        loop.run_until_complete(_database(server).run(cluster.take_number))
    assert not isinstance(caught.value, MetadataOutcomeUnknown)
    assert _number(server) == 0


def test_a_lost_answer_leaves_the_outcome_unknown(loop: SimLoop, server: SqlServer) -> None:
    server.loses_answers = 1.0
    with pytest.raises(MetadataOutcomeUnknown):
        loop.run_until_complete(_database(server).run(cluster.take_number))
    assert _number(server) == 1


def test_a_commit_may_happen_after_a_read_that_did_not_see_it(loop: SimLoop, server: SqlServer) -> None:
    async def story() -> tuple[int, int, int]:
        first, second = _database(server), _database(server, "b2")
        server.commits_late = 1.0
        with pytest.raises(MetadataOutcomeUnknown):
            for _ in range(20):
                await first.run(cluster.take_number)
        before = (await first.read(cluster.load)).change_number
        server.commits_late = 0.0
        number = await second.run(cluster.take_number, deadline_ms=10_000)  # Waits for the lock
        return before, number, _number(server)

    before, number, at_last = loop.run_until_complete(story())
    assert number == before + 2 == at_last


def test_a_failed_transaction_is_rolled_back(loop: SimLoop, server: SqlServer) -> None:
    def fail(conn: object) -> None:
        cluster.take_number(conn)  # type: ignore[arg-type]
        raise KeyError("no")

    with pytest.raises(KeyError):
        loop.run_until_complete(_database(server).run(fail))
    assert _number(server) == 0
