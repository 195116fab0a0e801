"""A client beside an attack, and the broker's memory meanwhile. For runs that are long: it measures.

The client is a process of its own: threads of the attacker's process would wait for each other, and the broker would
be blamed. The attacker rests now and then, so that both halves of the comparison meet the same machine.
"""

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.hostile_frames import resident_mib

PAUSE_S = 0.01
CYCLE_S = 30.0
REST_S = 6.0
SETTLING_S = 1.0
"""After the attacker stopped or went on: answers of this time belong to neither half."""
NOISE_MS = 10.0
"""A pause of Python's garbage collection, or of a machine that others use too."""
GROWTH_MIB = 32
"""In the last half. Groups, producers and names that requests make up are bounded, and nearly full by then."""


@dataclass
class Probe:
    """What a producer of small batches met, and what the broker held meanwhile."""

    started_s: float = field(default_factory=time.monotonic)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """(when asked, by the monotonic clock, seconds; how long the answer took, milliseconds)"""
    resident_mib: list[float] = field(default_factory=list)

    def seconds_of_rest(self) -> float:
        """How long an attacker must do nothing now; 0 when it may go on."""
        return max(0.0, REST_S - (time.monotonic() - self.started_s) % CYCLE_S)

    def p99_ms(self, *, attacked: bool) -> float:
        found = []
        for asked_s, wait_ms in self.waits:
            at_s = (asked_s - self.started_s) % CYCLE_S
            since_s = at_s - REST_S if attacked else at_s
            if SETTLING_S <= since_s < (CYCLE_S if attacked else REST_S):
                found.append(wait_ms)
        return p99(found)

    def p99_ms_between(self, since_s: float, until_s: float) -> float:
        """Of what was asked then, by the monotonic clock."""
        return p99([wait_ms for asked_s, wait_ms in self.waits if since_s <= asked_s < until_s])

    @property
    def growth_mib(self) -> float:
        """Of memory in the second half: the median of the last quarter over that of the third one."""
        quarter = len(self.resident_mib) // 4
        assert quarter > 0, "too short to see memory grow"
        return statistics.median(self.resident_mib[-quarter:]) - statistics.median(
            self.resident_mib[-2 * quarter : -quarter]
        )

    def check(self, attack: str) -> None:
        """Says what was met, and fails where it was too much."""
        resting_ms, attacked_ms = self.p99_ms(attacked=False), self.p99_ms(attacked=True)
        said = (
            f"{attack}; another client's p99 {attacked_ms:.1f} ms beside it, {resting_ms:.1f} ms while it rests; "
            f"{self.resident_mib[-1]:.0f} MiB, {self.growth_mib:.1f} of them new in the last half"
        )
        print(said)
        assert attacked_ms <= max(2 * resting_ms, NOISE_MS), said
        assert self.growth_mib < GROWTH_MIB, said


def p99(found: Sequence[float]) -> float:
    assert len(found) >= 200, "too short for a p99"
    return sorted(found)[int(len(found) * 0.99)]


@contextmanager
def probing(broker: BrokerProcess, topic: str) -> Iterator[Probe]:
    """A probe that asks until the block ends; raises AssertionError there when one of its requests failed."""
    found = Probe()
    arguments = [sys.executable, "-m", "tests.fuzz.probe", str(broker.kafka_port), topic]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def listen() -> None:
            for line in process.stdout or ():
                asked_s, wait_ms = line.split()
                found.waits.append((float(asked_s), float(wait_ms)))
                if len(found.waits) % 100 == 0:
                    found.resident_mib.append(resident_mib(broker))

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield found
        finally:
            process.stdin.close()
            listener.join()
    assert process.returncode == 0, "a request of the probe failed: its last words are above"


@dataclass
class Door:
    kafka_port: int


def main(kafka_port: int, topic: str) -> None:
    """Prints a line for each answer, until the reader closes our standard input."""
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    with RawConnection(Door(kafka_port), timeout_s=60) as connection:
        while not over.is_set():
            asked_s = time.monotonic()
            assert connection.produce(topic, batch([b"x" * 100])).error_code == 0
            print(f"{asked_s:.3f} {(time.monotonic() - asked_s) * 1000.0:.3f}", flush=True)
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
