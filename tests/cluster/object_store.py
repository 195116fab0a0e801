"""The S3 API of a cluster under test: one endpoint for each broker, whose faults touch that broker alone.

Owns the process that serves them, and a client that sees what is really stored.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.cluster.child import Child
from tiered.testing.faulty_s3 import S3FaultKind
from tiered.testing.moto_s3 import s3_client

BUCKET = "tiered-cluster"
PREFIX = "soak"
STORE_FAULTS = (
    S3FaultKind.SLOW_DOWN,
    S3FaultKind.SERVER_ERROR,
    S3FaultKind.TRUNCATE,
    S3FaultKind.RESET,
    S3FaultKind.RESET_AFTER,
)
UNDELETABLE = ("0.seg", "3.seg", "6.seg", "9.seg", "c.seg", "f.seg", "0.json", "8.json")
"""The ends of the names of objects that may not be deleted for a while: six of sixteen segments, and an eighth of
the pages of checkpoints."""


class ObjectStore:
    """Used as a context."""

    def __init__(self, folder: Path, *, brokers: int) -> None:
        self._child = Child("tests.cluster.object_store_process", BUCKET, str(brokers), log=folder / "s3.log")
        urls = self._child.ask({"do": "urls"})
        self.truth_url: str = urls["truth"]
        self.urls: dict[int, str] = {int(number): url for number, url in urls["proxies"].items()}
        self._client: Any = None
        self._expired_keys: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        self._child.close()

    def misbehave(
        self, broker_id: int, *, seed: int, probability: float, kinds: Sequence[S3FaultKind], seconds: float = 0.0
    ) -> None:
        """Each request of this broker meets one of these faults with this probability, until `heal`."""
        names = [kind.name for kind in kinds]
        order = {"do": "misbehave", "broker": broker_id, "seed": seed, "kinds": names}
        self._child.ask({**order, "probability": probability, "seconds": seconds})

    def refuse_deletes(self) -> None:
        """403 for whoever deletes one of `UNDELETABLE`, until `heal`."""
        self._child.ask({"do": "refuse_deletes", "endings": UNDELETABLE})

    def expire(self, access_key: str) -> None:
        """The session of this access key is over, for good."""
        self._expired_keys.append(access_key)
        self._child.ask({"do": "expire", "keys": [access_key]})

    def heal(self) -> None:
        """Ends every fault. Sessions that are over stay so."""
        self._child.ask({"do": "heal", "expired": self._expired_keys})

    def counts(self) -> dict[int, dict[str, int]]:
        """What each broker has asked for so far: `GET segment`, `PUT other`, `fault SLOW_DOWN` …"""
        return {int(number): count for number, count in self._child.ask({"do": "counts"}).items()}

    def get(self, key: str) -> bytes | None:
        """The whole object under the store's prefix, past all faults; None when there is none."""
        if self._client is None:
            self._client = s3_client(self.truth_url)
        try:
            answer = self._client.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{key}")
        except self._client.exceptions.NoSuchKey:
            return None
        data: bytes = answer["Body"].read()
        return data
