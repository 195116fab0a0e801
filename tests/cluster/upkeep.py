"""The upkeep that brokers do by themselves, after all faults are over: uploads, checkpoints, retention, deletions.

Owns the claims that none of these stands still. A claim that held once after healing is done, for work goes on
meanwhile. What was refused while a fault refused deletions is tried again only every hour, and is counted instead.
"""

import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import text

from tests.cluster.object_store import UNDELETABLE
from tests.cluster.processes import ClusterProcesses

HEALTHY: dict[str, Any] = {
    "status": 200,
    "failed_partitions": [],
    "disk_full": False,
    "metadata_went_back": False,
    "sql_away": False,
    "store_trouble": None,
    "upload_backlog_bytes": 0,
    "stale_checkpoints": 0,
}
LATE_MS = 15_000
"""Three sweeps."""


class Upkeep:
    """One cluster from now on. Somebody must write to `topic`, which keeps its records for seconds."""

    def __init__(self, cluster: ClusterProcesses, topic: str) -> None:
        self.refused = 0
        """Objects that are still there because their deletion was refused."""
        self._cluster = cluster
        self._topic = topic
        self._done: set[str] = set()
        self._before = self._progress()

    def wait(self, timeout_s: float) -> list[str]:
        """Returns when every claim has held; after so long with those that have not."""
        deadline = time.monotonic() + timeout_s
        while (words := self._unfinished()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [f"not within {timeout_s:g} s after healing: {line}" for line in words]

    def _unfinished(self) -> list[str]:
        words = []
        for claim, wrong in self._claims():
            if not wrong:
                self._done.add(claim)
            elif claim not in self._done:
                words.append(f"{claim}: {wrong}")
        return words

    def _claims(self) -> Iterator[tuple[str, object]]:
        """What must hold, and what is wrong with it."""
        for broker_id, broker in self._cluster.brokers.items():
            health = broker.health()
            for name, expected in HEALTHY.items():
                is_right = health[name] == expected
                yield f"{name} of broker {broker_id} is {expected}", None if is_right else repr(health[name])
            yield (
                f"broker {broker_id} finds nothing wrong",
                {k: count for k, count in health["findings"].items() if count},
            )
        for name, count in self._progress().items():
            is_stuck = count <= self._before[name]
            yield f"{name} of {self._topic} grows", f"it is {count}" if is_stuck else None
        yield "no object is left that should be gone", self._leftovers()

    def _progress(self) -> dict[str, int]:
        """Numbers that grow with uploads, with retention and with deletions."""
        (row,) = self._cluster.partition_rows(self._topic)
        with self._cluster.engine.connect() as conn:
            purged = conn.execute(
                text("SELECT count(*) FROM segment WHERE topic_id = :id AND state = 'purged'"), {"id": row.topic_id}
            ).scalar_one()
        return {"cold end": row.cold_end_offset, "log start": row.log_start_offset, "number of purged objects": purged}

    def _leftovers(self) -> list[str]:
        """Objects that nobody deletes although it is time, but for those whose deletion was refused."""
        late_ms = time.time_ns() // 1_000_000 - LATE_MS
        with self._cluster.engine.connect() as conn:
            keys = conn.execute(
                text(
                    "SELECT object_key FROM segment WHERE (state = 'retired' AND purge_after_ms < :late)"
                    " OR (state = 'planned' AND deadline_ms < :late)"
                ),
                {"late": late_ms},
            ).scalars()
            late = list(keys)
        refusals = sum(counts.get("fault ACCESS_DENIED", 0) for counts in self._cluster.store.counts().values())
        refused = [key for key in late if refusals and key.endswith(UNDELETABLE)]
        self.refused = len(refused)
        return [key for key in late if key not in refused]
