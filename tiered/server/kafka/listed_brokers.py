"""The brokers as a client of this one is told of them: Metadata and DescribeCluster agree by it.

Owns the list alone. This broker comes with the address that the client has found it by, where it is bound to all of
the machine's; others come as they registered. Must never ask SQL.
"""

from typing import NamedTuple

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
    found = broker.image.brokers.get(broker.image.controller_id)
    return broker.broker_id if found is None or found.fenced else found.broker_id


def listed_brokers(context: Context, *, fenced: bool = False) -> list[ListedBroker]:
    """Those in service, by id; with `fenced` all that are registered."""
    broker = context.broker
    rows = broker.image.brokers.values() if fenced else broker.image.live()
    listed = []
    for row in sorted(rows, key=lambda each: each.broker_id):
        is_here = row.broker_id == broker.broker_id
        host, port = broker.address_for(context.connection.local_host) if is_here else (row.host, row.port)
        listed.append(ListedBroker(row.broker_id, host, port, row.rack, row.fenced))
    return listed
