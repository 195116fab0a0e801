"""Metadata and what administrators ask, over the wire."""

from confluent_kafka.admin import AdminClient

from tests.broker_process import BrokerProcess
from tests.clients import clients
from tests.clients.raw import RawConnection
from tiered.wire import messages

METADATA = 3


def ask(connection: RawConnection, names: list[str] | None, *, version: int = 9, may_create: bool = False):  # type: ignore[no-untyped-def]
    namespace = messages.request(METADATA, version)
    topics = None if names is None else [namespace.MetadataRequestTopic(topic_id=None, name=name) for name in names]
    return connection.ask(
        METADATA,
        version,
        namespace.MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=may_create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        ),
    )


def admin(broker: BrokerProcess) -> AdminClient:
    return clients.admin(broker.bootstrap)
