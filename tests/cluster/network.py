"""The network between the brokers, their clients, PostgreSQL and S3, as a test steers it.

Owns the proxy's process. Faults name links by their two ends; one-way cuts hold one direction alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.cluster.child import Child
from tests.cluster.links import CLIENTS, LinkFault

SQL = "sql"
S3 = "s3"

HELD = LinkFault(hold_requests=True, hold_answers=True)
HELD_REQUESTS = LinkFault(hold_requests=True)
HELD_ANSWERS = LinkFault(hold_answers=True)


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


class Network:
    """Ports of its own in front of everything; all links are good at first."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        self._child = Child("tests.cluster.network_process", str(seed), log=folder / "network.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def listen(self, destination: str, *, source: str | None = None) -> int:
        """A new port that leads to `destination`. Without a `source`, Kafka's client id tells who connects."""
        port: int = self._child.ask({"do": "listen", "destination": destination, "source": source})
        return port

    def aim(self, destination: str, target: str | tuple[str, int]) -> None:
        """Where `destination` is: a unix socket's path, or a host and port."""
        self._child.ask({"do": "aim", "destination": destination, "target": target})

    def fault(self, source: str, destination: str, fault: LinkFault) -> None:
        """From now on, until `heal` or another fault of the same link."""
        self._child.ask({"do": "fault", "source": source, "destination": destination, "fault": fault.to_json()})

    def mend(self, source: str, destination: str) -> None:
        """One link is good again."""
        self.fault(source, destination, LinkFault())

    def cut_between(self, one: int, other: int, fault: LinkFault = HELD) -> None:
        """Brokers `one` and `other` cannot follow each other. With `HELD_REQUESTS`, `one` hears `other` no more."""
        self.fault(broker_name(one), broker_name(other), fault)
        self.fault(broker_name(other), broker_name(one), fault)

    def isolate(self, broker_id: int, others: Sequence[int], fault: LinkFault = HELD, *, clients: bool = True) -> None:
        """The broker reaches no other broker and none reaches it, nor do clients unless they are spared."""
        for other in others:
            if other != broker_id:
                self.cut_between(broker_id, other, fault)
        if clients:
            self.fault(CLIENTS, broker_name(broker_id), fault)

    def heal(self) -> None:
        """All links are good again."""
        self._child.ask({"do": "heal"})

    def facts(self) -> dict[str, dict[str, Any]]:
        """Each link's carried bytes, open connections, resets and cuts, under `source>destination`."""
        found: dict[str, dict[str, Any]] = self._child.ask({"do": "facts"})
        return found
