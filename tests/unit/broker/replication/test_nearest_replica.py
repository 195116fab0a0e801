"""To whom a consumer that names its rack is sent: to a follower there that has what it asks for, or to nobody."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.broker_rows import broker_row
from tests.support.partition_appends import append, batch
from tests.unit.broker.context import surroundings
from tests.unit.broker.replication.replicas import EPOCHS, replica, row, tell
from tiered.broker.replication.nearest_replica import RACK_AWARE, nearest_replica
from tiered.broker.view.image import ClusterImage
from tiered.ids import InSyncReplica
from tiered.meta.brokers import BrokerRow


def broker(broker_id: int, rack: str, *, broker_epoch: int | None = None, fenced: bool = False) -> BrokerRow:
    epoch = EPOCHS[broker_id] if broker_epoch is None else broker_epoch
    return broker_row(broker_id, epoch, rack=rack, fenced=fenced)


async def chosen(
    folder: Path,
    *,
    rack: str = "b",
    offset: int = 0,
    fetched: dict[int, int],
    brokers: Iterable[BrokerRow] = (),
    selector: str = RACK_AWARE,
    isr: tuple[int, ...] = (1, 2, 3),
    fetched_epoch: int | None = None,
) -> int | None:
    """By broker 1, which has no rack and three records; `fetched` is how far followers are."""
    image = ClusterImage()
    image.put_brokers([broker(1, ""), broker(2, "b"), broker(3, "b")], 0.0)
    image.put_brokers(brokers, 0.0)
    leader = replica(folder, 1, lambda _: True)
    tell(leader, row(isr=isr))
    for value in "abc":
        append(leader, batch(value), acks=1)
    for broker_id, reached in fetched.items():
        leader.note_fetch(InSyncReplica(broker_id, fetched_epoch or EPOCHS[broker_id]), reached, 0.0)
    async with surroundings(folder, replica_selector_class=selector) as made:
        return nearest_replica(made.context, image, leader, rack=rack, fetch_offset=offset)


async def test_of_followers_in_the_rack_the_furthest_wins_and_of_equals_the_lowest_id(tmp_path: Path) -> None:
    assert await chosen(tmp_path / "1", fetched={2: 1, 3: 2}) == 3
    assert await chosen(tmp_path / "2", fetched={2: 2, 3: 2}) == 2


@pytest.mark.parametrize(
    "unlike",
    [
        {"rack": "c"},
        {"rack": ""},
        {"offset": 2},
        {"fetched": {}},
        {"fetched_epoch": 999},
        {"isr": (1,)},
        {"selector": "org.apache.kafka.common.replica.LeaderSelector"},
        {"brokers": [broker(2, "c")]},
        {"brokers": [broker(2, "b", fenced=True)]},
        {"brokers": [broker(2, "b", broker_epoch=999)]},
    ],
    ids="-".join,
)
async def test_a_consumer_stays_with_the_leader_unless_a_fit_follower_is_nearer(
    tmp_path: Path, unlike: dict[str, object]
) -> None:
    """Each is the case of one follower in the rack, but for one thing."""
    assert await chosen(tmp_path / "as it is", fetched={2: 1}) == 2
    assert await chosen(tmp_path / "unlike", **{"fetched": {2: 1}, **unlike}) is None  # type: ignore[arg-type]
