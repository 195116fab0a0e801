"""`/metrics` without a broker: how counters describe themselves, and how families become text."""

import asyncio
import re
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tiered.metrics import DESCRIBED, CallTimes, CountersState, Histogram
from tiered.server.http.metrics.broker import METRICS
from tiered.server.http.metrics.prometheus import Family, exposition_of, families_of

ABBREVIATED_UNITS = ("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d")


def parsed(*families: Family) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values by sample and labels, as Prometheus' own parser reads them."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(asyncio.run(exposition_of(families)).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def counted(counters: CountersState, *names: str) -> list[Family]:
    return list(families_of([DESCRIBED[each] for each in names], counters))


def test_a_counter_is_shown_under_the_name_that_its_field_gives() -> None:
    counters = CountersState(produced_bytes=7, connections_open=2)
    found = parsed(*counted(counters, "produced_bytes", "connections_open"))
    assert found == {"tiered_produced_bytes_total": {(): 7.0}, "tiered_connections": {(): 2.0}}


def test_a_field_with_labels_has_a_sample_for_each_key() -> None:
    counters = CountersState()
    counters.http_requests["GET", "/healthz", 200] += 3
    counters.logins["failed"] += 1
    found = parsed(*counted(counters, "http_requests", "logins"))
    labels = (("method", "GET"), ("route", "/healthz"), ("status", "200"))
    assert found["tiered_http_requests_total"] == {labels: 3.0}
    assert found["tiered_logins_total"] == {(("outcome", "failed"),): 1.0, (("outcome", "succeeded"),): 0.0}


def test_a_histogram_is_told_in_seconds() -> None:
    counters = CountersState()
    counters.request_latency["Fetch"].observe(500.0)
    found = parsed(*counted(counters, "request_latency"))
    assert found["tiered_request_seconds_sum"] == {(("api", "Fetch"),): 0.5}
    assert found["tiered_request_seconds_count"] == {(("api", "Fetch"),): 1.0}


def test_every_field_that_describes_itself_can_be_shown_and_no_two_share_a_name() -> None:
    families = counted(CountersState(), *DESCRIBED)
    assert len({each.name for each in families}) == len(families) == len(DESCRIBED)
    assert all(each.documentation.endswith(".") for each in families)


def test_two_brokers_of_one_process_count_apart() -> None:
    one, other = CountersState(), CountersState()
    one.requests["Fetch"] += 1
    assert other.requests == {}


def test_names_are_escaped_as_prometheus_wants_them() -> None:
    hostile = 'a"b\\c\nd{}=,'
    family = Family(name="x", kind="gauge", documentation="y", samples=[({"group": hostile}, 1.5)])
    (parsed,) = text_string_to_metric_families(asyncio.run(exposition_of([family])).decode())
    assert parsed.samples[0].labels == {"group": hostile}
    assert parsed.samples[0].value == 1.5


def test_a_long_name_is_cut_and_stays_another_and_no_control_character_comes_out() -> None:
    names = ["g" * 32_000, "g" * 31_999, "\x1b[2Jgroup\x00\x9b"]
    family = Family(name="x", kind="gauge", documentation="y", samples=[({"group": name}, 1.0) for name in names])
    text = asyncio.run(exposition_of([family])).decode()
    first, second, third = (line[9:-4] for line in text.splitlines()[2:])
    assert len({first, second}) == 2
    assert max(len(first), len(second)) <= 255
    assert third == "\ufffd[2Jgroup\ufffd\ufffd"


def test_call_times_written_by_many_threads_lose_nothing() -> None:
    times = CallTimes()

    def observe() -> None:
        for number in range(5000):
            times.observe("get", number % 7, failed=number % 5 == 0)

    threads = [threading.Thread(target=observe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(times.latency()["get"].counts) == 40_000
    assert times.failures() == {"get": 8000}


def test_an_exposition_gives_others_their_turn_within_a_family_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventy routes' histograms are one family, and were three milliseconds in one step."""
    monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
    histograms = [({"route": f"/{number}"}, Histogram()) for number in range(100)]
    family = Family(name="x", kind="histogram", documentation="y", samples=histograms)

    async def turns() -> int:
        made = asyncio.create_task(exposition_of([family]))
        taken = 0
        while not made.done():
            taken += 1
            await asyncio.sleep(0)
        assert len(made.result()) > 40_000
        return taken

    assert asyncio.run(turns()) >= 10


def test_names_are_those_that_promtool_accepts() -> None:
    """The rules of `promtool check metrics`, for all metrics but those that stay for a version under an older name."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        words = metric.name.split("_")
        assert metric.documentation
        assert re.fullmatch(r"[a-z_0-9]+", metric.name), metric.name
        if metric.documentation.startswith("Deprecated"):
            continue
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert words[-1] not in ("bucket", "count", "sum"), metric.name
        assert not set(words) & {"counter", "gauge", "histogram", "summary", *ABBREVIATED_UNITS}, metric.name
        assert not set(metric.labels) & {"le", "quantile"}, metric.name


def test_a_renamed_metric_tells_the_same_under_both_names() -> None:
    counters = CountersState()
    counters.clock_ahead_ms = -1500
    both = [metric for metric in METRICS if metric.name.startswith("tiered_clock_ahead_")]
    shown = {family.name: list(family.samples) for family in families_of(both, counters)}
    assert shown == {"tiered_clock_ahead_seconds": [({}, -1.5)], "tiered_clock_ahead_ms": [({}, -1500)]}
