"""What is measured beside Apache Kafka: a table of cells, and what is expected of each.

Pure. A cell differs from the plainest one of its suite in one respect, so that a difference has one reason.
"""

from dataclasses import dataclass, replace

PRODUCE, CONSUME = "produce", "consume"
ACK, END_TO_END = "acknowledged", "end to end"
PARTITIONS, IDLE, BUSY = "partitions", "idle connections", "busy connections"
COMMITS, FETCHES = "offset commits", "offset fetches"
COLD, BESIDE_COLD = "consume cold", "end to end beside cold reads"
THREE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load. `count` is of what `what` names: connections, groups."""

    suite: str
    what: str
    size_bytes: int = 1024
    acks: str = "1"
    partitions: int = 1
    clients: int = 1
    linger_ms: int = 5
    compression: str = "none"
    over_tls: bool = False
    by_tool: bool = False
    """By Apache Kafka's own load tool."""
    brokers: int = 1
    per_second: int = 0
    count: int = 0
    is_quick: bool = False
    """One of those that `--quick` runs."""

    @property
    def name(self) -> str:
        """All that differs from the plainest cell."""
        if self.what == PARTITIONS:
            return f"{self.partitions:,} partition{'s' if self.partitions > 1 else ''}"
        if self.count:
            return f"{self.count:,} {self.what}" if self.what in (IDLE, BUSY) else f"{self.what}, groups: {self.count}"
        words = [self.what]
        words += [f"{self.per_second:,}/s"] if self.per_second else []
        words += [f"{self.size_bytes} B" if self.size_bytes != 1024 else "1 KiB"]
        words += [f"acks={self.acks}"] if self.what not in (CONSUME, COLD) else []
        words += [f"{self.partitions} partitions"] if self.partitions > 1 else []
        words += [f"linger {self.linger_ms} ms"] if self.linger_ms != 5 else []
        words += [self.compression] if self.compression != "none" else []
        words += [f"{self.clients} clients"] if self.clients > 1 else []
        words += [f"{self.brokers} brokers"] if self.brokers > 1 else []
        words += ["TLS"] if self.over_tls else []
        words += ["ours polls"] if self.suite == "polling" else []
        words += ["Kafka's tool"] if self.by_tool else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is expected of one number: as a multiple of Apache Kafka's, or by itself."""

    metric: str
    ratio: float | None = None
    value: float | None = None


def _matrix() -> tuple[Cell, ...]:
    produce = Cell(suite="throughput", what=PRODUCE)
    consume = Cell(suite="throughput", what=CONSUME)
    ack = Cell(suite="latency", what=ACK, size_bytes=100, per_second=1000)
    many = Cell(suite="partitions", what=PARTITIONS)
    three = Cell(suite="brokers", what=PRODUCE, acks="all", brokers=THREE)
    return (
        *(
            replace(produce, size_bytes=size_bytes, acks=acks, is_quick=acks == "1")
            for size_bytes in (1024, 100)
            for acks in ("1", "all")
        ),
        replace(consume, is_quick=True),
        replace(consume, size_bytes=100),
        *(replace(each, suite="spread", partitions=count) for count in (8, 100) for each in (produce, consume)),
        *(replace(produce, suite="linger", linger_ms=linger_ms, acks="all") for linger_ms in (0, 50)),
        *(
            replace(each, suite="compression", compression=compression)
            for compression in ("lz4", "zstd")
            for each in (produce, consume)
        ),
        *(replace(each, suite="clients", clients=8, partitions=8) for each in (produce, consume)),
        *(
            replace(ack, what=what, per_second=per_second, acks=acks, is_quick=per_second == 1000 and acks == "all")
            for per_second in (1000, 10_000)
            for what, acks in ((ACK, "1"), (ACK, "all"), (END_TO_END, "all"))
        ),
        *(
            replace(ack, suite="polling", what=what, per_second=per_second, acks=acks)
            for what, per_second, acks in ((ACK, 1000, "1"), (END_TO_END, 1000, "all"), (ACK, 10_000, "1"))
        ),
        Cell(suite="connections", what=IDLE, count=1000, is_quick=True),
        Cell(suite="connections", what=BUSY, count=200),
        *(replace(each, suite="tls", over_tls=True) for each in (produce, consume)),
        *(
            replace(produce, suite="tools", by_tool=True, size_bytes=size_bytes, acks=acks)
            for size_bytes in (1024, 100)
            for acks in ("1", "all")
        ),
        replace(consume, suite="tools", by_tool=True),
        *(
            Cell(suite="offsets", what=what, partitions=20, count=count)
            for what in (COMMITS, FETCHES)
            for count in (1, 100)
        ),
        *(
            replace(three, size_bytes=size_bytes, partitions=partitions)
            for size_bytes in (1024, 100)
            for partitions in (1, THREE)
        ),
        *(replace(three, what=what, size_bytes=100, per_second=1000) for what in (ACK, END_TO_END)),
        replace(consume, suite="cold", what=COLD, partitions=8),
        *(replace(ack, suite="cold", what=what) for what in (END_TO_END, BESIDE_COLD)),
        *(replace(many, partitions=count, is_quick=count == 1) for count in (1, 1000, 5000, 10_000)),
    )


MATRIX = _matrix()
BY_NAME = {cell.name: cell for cell in MATRIX}
SUITES = tuple(dict.fromkeys(cell.suite for cell in MATRIX))


def chosen(only: list[str] | None, *, is_quick: bool) -> list[Cell]:
    """The matrix in its order: the cells of some suites, or with some names; else every cell, or those of a quick
    look."""
    if only:
        return [cell for cell in MATRIX if cell.suite in only or cell.name in only]
    return [cell for cell in MATRIX if cell.is_quick or not is_quick]


def targets(cell: Cell) -> tuple[Target, ...]:
    """Those of docs/performance.md."""
    if cell.over_tls:
        return (Target(metric="mb_per_s", ratio=1.5),)
    match cell.what:
        case "produce":
            return Target(metric="mb_per_s", ratio=1.0), Target(metric="broker_cpu_s_per_gb", ratio=_produce_cpu(cell))
        case "consume cold":
            return (
                Target(metric="mb_per_s", ratio=1.0),
                Target(metric="broker_cpu_s_per_gb", value=1.2),
                Target(metric="of_hot", value=0.8),
            )
        case "consume":
            return Target(metric="mb_per_s", ratio=1.0), Target(metric="broker_cpu_s_per_gb", ratio=0.5)
        case "acknowledged" | "end to end" | "end to end beside cold reads":
            p99 = Target(metric="p99_ms", value=5.0) if cell.brokers > 1 else Target(metric="p99_ms", ratio=0.5)
            return Target(metric="p50_ms", ratio=0.7), p99
        case "partitions":
            return (
                Target(metric="create_s", value=10.0),
                Target(metric="idle_cpu_percent", ratio=0.3, value=1.0),
                Target(metric="first_ack_s", value=5.0),
            )
        case "offset commits" | "offset fetches" if cell.count == 1:
            return (Target(metric="p50_ms", value=2.0 if cell.what == COMMITS else 0.5),)
        case _:
            return ()


def _produce_cpu(cell: Cell) -> float:
    if cell.by_tool:
        return 0.9
    if cell.compression != "none":
        return {"lz4": 0.8, "zstd": 1.0}[cell.compression]
    return 0.5 if cell.size_bytes >= 1024 else 0.7
