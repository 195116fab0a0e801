"""The brokers as a client of this one is told of them, by Metadata and by DescribeCluster.

Owns the list alone. Each comes with the address of the listener that the client has asked on; who has none of that name
is left out. This broker comes with the address that the client has found it by, where it is bound to all of the
machine's. Must never ask SQL.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tiered.broker.view.image import BrokerRow
from tiered.server.kafka.dispatch import Context


class ListedBroker(NamedTuple):
    """A broker, and where clients find it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


def controller_id(context: Context) -> int:
    """Whom clients take for the controller: the one that holds the lease, else this broker, for any of them can do

    what clients ask of a controller.
    """
    broker = context.broker
    if broker.options.read_only:
        return broker.broker_id
    found = broker.image.brokers.get(broker.image.controller_id)
    return broker.broker_id if found is None or found.fenced else found.broker_id


def named_brokers(context: Context) -> list[ListedBroker]:
    """Those whom clients may have to do with, by id: in service, or until a moment ago."""
    broker = context.broker
    if broker.options.read_only:
        return [_this(context)]
    return _listed(context, broker.image.named(broker.clock.monotonic_ms()))


def described_brokers(context: Context, *, fenced: bool) -> list[ListedBroker]:
    """Those in service, by id; with `fenced` all that are registered."""
    if context.broker.options.read_only:
        return [_this(context)]
    image = context.broker.image
    return _listed(context, sorted(image.brokers.values(), key=lambda row: row.broker_id) if fenced else image.live())


def _this(context: Context) -> ListedBroker:
    """All that a read replica tells of: nobody else serves what it does."""
    broker = context.broker
    address = broker.address_for(context.connection.local_host, context.connection.listener.name)
    return ListedBroker(broker.broker_id, *address, broker.rack, is_fenced=False)


def _listed(context: Context, rows: Iterable[BrokerRow]) -> list[ListedBroker]:
    broker, listener = context.broker, context.connection.listener.name
    listed = []
    for row in rows:
        is_here = row.broker_id == broker.broker_id
        address = broker.address_for(context.connection.local_host, listener) if is_here else row.address(listener)
        if address is not None:
            listed.append(ListedBroker(row.broker_id, *address, row.rack, row.fenced))
    return listed
