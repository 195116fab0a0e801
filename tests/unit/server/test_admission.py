"""Who may connect: caps by address with exceptions, by user and in all, and how fast."""

import pytest

from tiered.config import BrokerSettings
from tiered.errors import InvalidConfig
from tiered.rules.pacing.token_bucket import TokenBucketState
from tiered.rules.security.principal import ANONYMOUS, Principal
from tiered.server.kafka.transport.admission import Admission

HERE, THERE = "10.0.0.1", "10.0.0.2"
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


class HandClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.time_ms = 0.0

    def now_ms(self) -> int:
        return int(self.time_ms)

    def monotonic_ms(self) -> float:
        return self.time_ms

    def elapsed_ms(self) -> float:
        return self.time_ms

    def worked_ms(self) -> float:
        return 0.0


class Door:
    """An admission with settings as texts, and a rate of connections for each address."""

    def __init__(self, rates: dict[str, float] | None = None, **texts: object) -> None:
        self.clock = HandClock()
        self.change(**texts)
        buckets = {host: TokenBucketState(rate, window_ms=1000.0, now_ms=0.0) for host, rate in (rates or {}).items()}
        self.admission = Admission(
            clock=self.clock, settings=lambda: self.settings, most_descriptors=lambda: 100, rate_of=buckets.get
        )

    def change(self, **texts: object) -> None:
        self.settings = BrokerSettings.of({name.replace("_", "."): str(value) for name, value in texts.items()})

    def admits(self, host: str) -> bool:
        if self.admission.refusal(host, 0) is not None:
            return False
        self.admission.enter(host)
        return True


def test_an_address_has_its_own_cap_or_that_of_all() -> None:
    door = Door(max_connections_per_ip=1, max_connections_per_ip_overrides=f"{THERE}:3,[::1]:0")
    assert [door.admits(HERE) for _ in range(2)] == [True, False]
    assert [door.admits(THERE) for _ in range(4)] == [True, True, True, False]
    assert not door.admits("::1")
    assert not door.admits(f"::ffff:{THERE}"), "the same address, in another form"
    link_local = [door.admits(f"fe80::1%{link}") for link in ("eth0", "eth1")]
    assert link_local == [True, False], "the same address, on another link"
    door.admission.leave(HERE)
    assert door.admits(HERE)
    door.change(max_connections_per_ip=2)
    assert door.admits(HERE)


def test_all_together_are_bounded_by_the_setting_and_by_open_files() -> None:
    door = Door(max_connections=5)
    assert door.admission.refusal(HERE, 4) is None
    assert "max.connections" in str(door.admission.refusal(HERE, 5))
    assert "open files" in str(Door().admission.refusal(HERE, 100))


def test_a_user_may_have_so_many_connections_and_those_who_are_nobody_any_number() -> None:
    door = Door(tiered_max_connections_per_user=2)
    identify = door.admission.identify
    assert [identify(None, ALICE) for _ in range(3)] == [True, True, False]
    assert identify(None, BOB)
    assert all(identify(None, ANONYMOUS) for _ in range(10))
    identify(ALICE, None)
    assert not identify(None, ALICE), "the one that was refused counts until it is closed"
    identify(ALICE, None)
    identify(ALICE, None)
    assert identify(None, ALICE)
    assert identify(ALICE, ALICE), "logging in again is no other connection"
    assert not identify(ANONYMOUS, ALICE)


def test_all_of_them_come_no_faster_than_they_may() -> None:
    door = Door(max_connection_creation_rate=10, quota_window_num=1)
    for _ in range(11):
        assert door.admission.rest_ms() == 0.0
        door.admission.accepted(HERE)
    assert door.admission.rest_ms() == 100.0
    door.clock.time_ms = 100.0
    assert door.admission.rest_ms() == 0.0
    door.change()
    for _ in range(1000):
        door.admission.accepted(HERE)
    assert door.admission.rest_ms() == 0.0


def test_an_address_that_connects_too_fast_rests_and_no_other() -> None:
    door = Door(rates={HERE: 2.0})
    assert [door.admission.accepted(f"::ffff:{HERE}") for _ in range(3)] == [0.0, 0.0, 500.0]
    assert door.admission.accepted(THERE) == 0.0


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", "a.host:5", ":5", "10.0.0.1:5000000000"])
def test_an_override_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="ADDRESS:NUMBER"):
        BrokerSettings.of({"max.connections.per.ip.overrides": text})
