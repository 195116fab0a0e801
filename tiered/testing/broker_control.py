"""`c.broker`, `c.brokers`: stop, kill and start a broker of a test cluster, always on the same ports and data.

Owns the broker's present life. Must never change what is on disk, nor know whether the broker lives in a thread of this
process or in one of its own.
"""

from collections.abc import Callable
from typing import Any, Protocol

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class Life(Protocol):
    """One broker from its start to its end; it is begun once. Both implementations are in the modules beside this."""

    def start(self) -> None:
        """Returns when it serves. Raises TieredError or OSError with a message that says what to do."""

    def stop(self) -> None:
        """A controlled shutdown. Raises what ended the broker before, if something did."""

    def kill(self) -> None:
        """Ends it without a goodbye."""

    def health(self) -> dict[str, Any]:
        """The answer of `/readyz`."""


class BrokerEndedError(RuntimeError):
    """The broker ended though nobody had asked it to."""


class BrokerControl:
    """Used from one thread at a time."""

    def __init__(self, begin: Callable[[int], Life], broker_id: int = 1) -> None:
        self._begin = begin
        self._life: Life | None = None
        self.broker_id = broker_id
        """Its number in the cluster: what clients are told, and what `replicas` and `leader` say."""

    @property
    def is_running(self) -> bool:
        """False after `stop` and `kill`, until `start` or `restart`."""
        return self._life is not None

    @property
    def life(self) -> Life:
        """The running broker. Raises BrokerEndedError when a test has stopped it."""
        if self._life is None:
            raise BrokerEndedError("the broker is not running: call broker.start() first")
        return self._life

    def start(self) -> None:
        """Starts the broker again, on the data that it left. Nothing happens when it runs."""
        if self._life is None:
            life = self._begin(self.broker_id)
            life.start()
            self._life = life

    def stop(self) -> None:
        """A controlled shutdown, as after SIGTERM: answers go out, logs are flushed and marked clean."""
        life, self._life = self._life, None
        if life is not None:
            life.stop()

    def kill(self) -> None:
        """As kill -9: connections are reset, nothing is flushed, marked, fenced or said. The next start recovers.

        With `in_process=False` it is SIGKILL. In this process, calls that a thread is in the middle of (a write to
        the disk, an SQL transaction, a request to S3) are carried out first, where a real kill would cut them.
        """
        life, self._life = self._life, None
        if life is not None:
            life.kill()

    def restart(self) -> None:
        """`stop`, if it runs, and `start`."""
        self.stop()
        self.start()
