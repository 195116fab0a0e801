"""How large a run is and what its brokers and topic are set to, and what became of it.

Owns these values alone: what is done with them is for `tests.simulation.world`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

SETTINGS = {
    "broker.heartbeat.interval.ms": "800",
    "broker.session.timeout.ms": "2500",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "1000",
    "replica.fetch.backoff.ms": "100",
    "tiered.upload.interval.ms": "1000",
    "tiered.checkpoint.interval.ms": "4000",
    "log.retention.check.interval.ms": "10000",
    "leader.imbalance.check.interval.seconds": "7",
    "tiered.lag.sample.interval.ms": "600000",
    "tiered.reconcile.interval.ms": "-1",
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
TOPIC = {
    "min.insync.replicas": "2",
    "segment.bytes": "2500",
    "local.retention.bytes": "4000",
    "message.timestamp.after.max.ms": str(30 * 24 * 3_600_000),
    "index.interval.bytes": "200",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How large a run is. Times in virtual seconds."""

    brokers: int = 3
    partitions: int = 2
    faults_s: float = 11.0
    fault_every_s: float = 0.93
    mishaps: float = 0.08
    batches_per_second: float = 2.0
    poll_s: float = 1.0
    pause_s: float = 0.0
    """The longest pause of a Produce between its append and its wait for followers."""
    groups: int = 2
    transactors: int = 0
    """Transactional producers; the last two have one transactional id between them, and fence each other."""
    forgets: int = 0
    """So many of its last commits the database loses in the middle of it, which ends the run."""


PLAIN = Plan()
IN_TURNS = Plan(pause_s=0.2)
UNCERTAIN = Plan(partitions=6, mishaps=0.25)
"""Many changes of partitions, and many COMMITs whose outcome nobody knows."""
TRANSACTIONAL = Plan(transactors=3, groups=1, batches_per_second=0.7)


FORGETFUL = Plan(groups=0, batches_per_second=4.0, forgets=20)
MOST_FORGOTTEN = 50


def plan_of(seed: int) -> Plan:
    """Every other seed has transactions, every fourth one pauses in Produce. In every eighth the database forgets."""
    if seed % 8 == 6:
        return replace(FORGETFUL, forgets=1 + seed // 8 % MOST_FORGOTTEN)
    if seed % 2:
        return TRANSACTIONAL
    return PLAIN if seed % 4 else IN_TURNS


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one seed."""

    seed: int
    violation: str | None = None
    digest: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    acknowledged: int = 0
    polled: int = 0
    elections: int = 0
    isr_changes: int = 0
    truncations: int = 0
    unavailable: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    is_checked_twice: bool = False
    """A second run went the same way."""
