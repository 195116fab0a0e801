"""What a broker's view of the cluster says of brokers that come and go."""

from dataclasses import replace
from uuid import UUID

from tests.support.broker_rows import broker_row
from tiered.broker.view.image import NAMED_AFTERWARDS_MS, ClusterImage
from tiered.meta.brokers import BrokerRow
from tiered.meta.partitions import PartitionRow

NOW_MS = 1_000_000.0


def row(broker_id: int, *, fenced: bool = False) -> BrokerRow:
    return broker_row(broker_id, 7, fenced=fenced)


def ids(rows: tuple[BrokerRow, ...]) -> list[int]:
    return [each.broker_id for each in rows]


def test_a_broker_that_leaves_is_named_until_clients_have_heard_who_leads_instead() -> None:
    image = ClusterImage()
    image.put_brokers([row(1), row(2)], NOW_MS)
    image.put_brokers([row(2, fenced=True)], NOW_MS)
    assert ids(image.live()) == [1]
    assert ids(image.named(NOW_MS + NAMED_AFTERWARDS_MS - 1)) == [1, 2]
    assert ids(image.named(NOW_MS + NAMED_AFTERWARDS_MS)) == [1]


def test_a_broker_that_was_out_of_service_before_is_not_named() -> None:
    image = ClusterImage()
    image.put_brokers([row(1), row(2, fenced=True)], NOW_MS)
    assert ids(image.named(NOW_MS)) == [1]


def test_news_of_a_broker_that_has_left_do_not_name_it_longer() -> None:
    image = ClusterImage()
    image.put_brokers([row(1)], NOW_MS)
    image.put_brokers([row(1, fenced=True)], NOW_MS)
    image.put_brokers([replace(row(1, fenced=True), heartbeat_at_ms=5)], NOW_MS + 4_000)
    assert ids(image.named(NOW_MS + NAMED_AFTERWARDS_MS)) == []


def test_a_broker_that_is_unregistered_is_named_no_more() -> None:
    image = ClusterImage()
    image.put_brokers([row(1), row(2)], NOW_MS)
    image.put_brokers([row(2, fenced=True)], NOW_MS)
    image.keep_brokers({1})
    assert ids(image.named(NOW_MS)) == [1]


def test_partitions_that_are_being_moved_are_known_until_they_have_come_or_their_topic_is_gone() -> None:
    image, topics = ClusterImage(), (UUID(int=1), UUID(int=2))
    still, leaving, coming = (
        PartitionRow(
            topic_id=topic_id, partition=number, leader=1, leader_epoch=0, partition_epoch=0, isr=(), replicas=(1, 2),
            log_start_offset=0, cold_end_offset=0, change_number=1, adding_replicas=adding, removing_replicas=removing,
        )
        for topic_id, number, adding, removing in (
            (topics[0], 0, (), ()), (topics[0], 1, (), (1,)), (topics[1], 0, (2,), ()),
        )
    )  # fmt: skip
    for partition_row in (still, leaving, coming):
        image.put_row(partition_row)
    assert set(image.moving) == {leaving, coming}
    image.put_row(replace(coming, adding_replicas=()))
    assert set(image.moving) == {leaving}
    image.remove_topic(topics[0])
    assert not image.moving
