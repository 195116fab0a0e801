"""What is taken for replicas that are being added is paid for in time, at the rate of the moment."""

from tiered.broker.replication.fetcher import LONGEST_PAUSE_MS, ReplicationThrottle
from tiered.config.setting import LONG_MAX


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at_ms = 5_000.0

    def monotonic_ms(self) -> float:
        return self.at_ms

    def elapsed_ms(self) -> float:
        return self.monotonic_ms()

    def worked_ms(self) -> float:
        return 0.0

    def now_ms(self) -> int:
        return int(self.at_ms)


def test_bytes_are_paid_for_in_time() -> None:
    clock = Hand()
    throttle = ReplicationThrottle(clock, lambda: 1_000)
    assert throttle.pause_ms(500) == 500
    clock.at_ms += 400
    assert throttle.pause_ms(0) == 100
    assert throttle.pause_ms(200) == 300
    clock.at_ms += 10_000
    assert throttle.pause_ms(0) == 0
    assert throttle.pause_ms(100) == 100, "time in which nothing was taken is no credit"


def test_nobody_waits_long_before_asking_again() -> None:
    clock = Hand()
    throttle = ReplicationThrottle(clock, lambda: 1)
    assert throttle.pause_ms(1 << 20) == LONGEST_PAUSE_MS
    clock.at_ms += LONGEST_PAUSE_MS
    assert throttle.pause_ms(0) == LONGEST_PAUSE_MS


def test_another_rate_holds_for_what_was_taken_before() -> None:
    clock = Hand()
    rate = 1
    throttle = ReplicationThrottle(clock, lambda: rate)
    assert throttle.pause_ms(1_000_000) == LONGEST_PAUSE_MS
    rate = 10_000_000
    assert throttle.pause_ms(0) == 100
    rate = LONG_MAX
    assert throttle.pause_ms(0) == 0
    assert throttle.pause_ms(1 << 30) == 0
    rate = 1_000
    assert throttle.pause_ms(0) == 0, "nothing is owed for what was free"
