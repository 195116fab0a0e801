"""Orders that come in all the time, for programs that work on them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`made_ms` is its own time; 0 is now."""

    key: str
    value: str
    made_ms: int = 0


class Orders:
    """Writes orders until told to stop, each of them once: the producer is idempotent."""

    def __init__(self, bootstrap: str, order: Callable[[int], Order]) -> None:
        """`order` makes the one of a number; they count from 0."""
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 20}
        )
        self._order = order
        self._stopping = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._stopping.wait(0.02):
            for number in range(self.count, self.count + 4):
                order = self._order(number)
                self._producer.produce("orders", order.value, order.key, timestamp=order.made_ms)
            self.count += 4
            self._producer.poll(0)

    def abandon(self) -> None:
        self._stopping.set()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
