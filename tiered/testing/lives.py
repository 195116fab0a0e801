"""What can be done with a test's broker, however it lives: in a thread of this process or in one of its own.

Owns the words for it. Must never know which of the two it is.
"""

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
        """What `/readyz` says."""


class BrokerEndedError(RuntimeError):
    """The broker ended though nobody had asked it to."""
