"""Which connection of the HTTP door gives up its place when there is none left."""

from dataclasses import dataclass

from tiered.server.http.door.open_connections import OpenConnections

MOST = 20


@dataclass(eq=False)
class Client:
    address: str
    has_request: bool = False
    is_ended: bool = False

    def hang_up(self) -> None:
        self.is_ended = True


def came(open_: OpenConnections, address: str, count: int, *, has_request: bool = False) -> list[Client]:
    """Those of so many that found a place."""
    clients: list[Client] = []
    for _ in range(count):
        if open_.make_room(address):
            clients.append(Client(address, has_request))
            open_.add(clients[-1])
    return clients


def ended(clients: list[Client]) -> list[int]:
    return [number for number, client in enumerate(clients) if client.is_ended]


def test_one_address_takes_half_and_its_next_connection_ends_its_oldest_silent_one() -> None:
    open_ = OpenConnections(lambda: MOST)
    silent = came(open_, "a", 13)
    assert len(silent) == 13
    assert ended(silent) == [0, 1, 2]
    assert ended(came(open_, "b", 1)) == []
    assert ended(silent) == [0, 1, 2], "there was room for another address"


def test_the_last_to_bring_a_request_is_the_last_to_go() -> None:
    open_ = OpenConnections(lambda: MOST)
    clients = came(open_, "a", 10)
    open_.brought_request(clients[0])
    came(open_, "a", 1)
    assert ended(clients) == [1]


def test_a_connection_with_a_request_never_gives_up_its_place() -> None:
    open_ = OpenConnections(lambda: MOST)
    busy = came(open_, "a", 15, has_request=True)
    assert len(busy) == 10
    assert ended(busy) == []
    assert len(came(open_, "b", 3)) == 3, "others have what is left"


def test_where_all_is_taken_whoever_has_more_gives_way() -> None:
    open_ = OpenConnections(lambda: MOST)
    busy, silent = came(open_, "a", 10, has_request=True), came(open_, "b", 5)
    crowd = [client for number in range(5) for client in came(open_, f"crowd-{number}", 1)]
    (newcomer,) = came(open_, "c", 1)
    assert ended(busy) == [], "those that have the most all have requests"
    assert ended(silent) == [0]
    assert ended(crowd) == []
    came(open_, "c", 10)
    assert ended(silent) == [0, 1, 2]
    assert newcomer.is_ended, "one that has more than the others gives up its own"


def test_where_each_comes_from_another_address_the_oldest_silent_one_goes() -> None:
    open_ = OpenConnections(lambda: MOST)
    crowd = [client for number in range(MOST) for client in came(open_, f"crowd-{number}", 1)]
    assert len(came(open_, "a", 1)) == 1
    assert ended(crowd) == [0]


def test_a_smaller_bound_counts_for_whoever_comes_next() -> None:
    most = MOST
    open_ = OpenConnections(lambda: most)
    clients = came(open_, "a", 10)
    most = 8
    assert came(open_, "b", 2) == []
    assert ended(clients) == [0, 1]
    assert len(came(open_, "b", 1)) == 1


def test_whoever_has_gone_takes_no_place() -> None:
    open_ = OpenConnections(lambda: MOST)
    for client in came(open_, "a", 10):
        open_.remove(client)
        open_.remove(client)
        open_.brought_request(client)
        assert client not in open_
    assert ended(came(open_, "a", 10)) == []
    assert list(open_._by_address) == ["a"]
