"""Transactional producers of a real client."""

from confluent_kafka import Producer

WAIT_S = 30.0


def producer(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    """Initialized: whoever had the id is fenced."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0, **config})
    made.init_transactions(WAIT_S)
    return made


def send(made: Producer, topic: str, *values: str, partition: int = 0) -> None:
    """In the open transaction, and answered."""
    for value in values:
        made.produce(topic, value.encode(), partition=partition)
    assert made.flush(WAIT_S) == 0


def begun(bootstrap: str, transactional_id: str, topic: str, *values: str, **settings: object) -> Producer:
    """With a transaction open on the topic's first partition."""
    made = producer(bootstrap, transactional_id, **settings)
    made.begin_transaction()
    send(made, topic, *(values or ("open",)))
    return made
