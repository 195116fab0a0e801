"""The registration of a broker, as the feed tells it."""

from tiered.meta.brokers import BrokerRow


def broker_row(broker_id: int, broker_epoch: int, *, rack: str | None = None, fenced: bool = False) -> BrokerRow:
    return BrokerRow(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        boot_id="a boot",
        fenced=fenced,
        heartbeat_at_ms=0,
        host="127.0.0.1",
        port=9092,
        http_host=None,
        http_port=None,
        rack=rack,
        incarnation_id=None,
        change_number=1,
    )
