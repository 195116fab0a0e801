"""Topics at a broker that Spark reads from."""

from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, num_partitions=partitions)]).values():
        created.result(20)
