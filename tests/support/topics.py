"""Topics that tests of every room make at a broker."""

from confluent_kafka.admin import NewTopic

from tests.broker_process import BrokerProcess
from tests.clients import clients


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **configs: object) -> str:
    """The name of a topic that is there now."""
    config = {name.replace("_", "."): str(value) for name, value in configs.items()}
    clients.admin(broker.bootstrap).create_topics([NewTopic(topic, partitions, config=config)])[topic].result(30)
    return topic
