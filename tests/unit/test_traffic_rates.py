"""The traffic of a partition a second, read off what is counted anyway."""

from tiered.metrics import RATE_WINDOW_MS, TrafficRates, TrafficState

SECOND = 1_000.0


def produce(traffic: TrafficState, now_ms: float, *, records: int = 1) -> None:
    traffic.begin(now_ms)
    traffic.produced_records += records
    traffic.produced_bytes += 100 * records


def test_a_steady_stream_has_its_rate_at_any_moment_once_a_window_is_over() -> None:
    traffic = TrafficState()
    for tenth in range(2_000):
        produce(traffic, 100.0 * tenth)
        if 100.0 * tenth > RATE_WINDOW_MS:
            rates = traffic.rates(100.0 * (tenth + 1))
            assert (round(rates.records_in, 1), round(rates.bytes_in, -1)) == (10.0, 1_000.0)


def test_a_burst_is_spread_over_the_window_and_gone_after_three() -> None:
    traffic = TrafficState()
    produce(traffic, 0.0)
    produce(traffic, 60 * SECOND, records=300)
    assert traffic.rates(60 * SECOND).records_in == 300 / (RATE_WINDOW_MS / 1_000)
    assert traffic.rates(60 * SECOND + 3 * RATE_WINDOW_MS).records_in == 0.0


def test_an_hour_of_silence_is_not_averaged_into_what_comes_after_it() -> None:
    traffic = TrafficState()
    produce(traffic, 0.0)
    for second in range(60):
        produce(traffic, 3_600 * SECOND + second * SECOND, records=50)
    assert round(traffic.rates(3_660 * SECOND).records_in) == 50


def test_what_followers_take_over_comes_in_and_what_consumers_get_goes_out() -> None:
    traffic = TrafficState()
    traffic.begin(0.0)
    traffic.begin(10 * SECOND)
    traffic.replicated_records, traffic.replicated_bytes, traffic.fetched_bytes = 20, 2_000, 500
    assert traffic.rates(10 * SECOND) == TrafficRates(records_in=2.0, bytes_in=200.0, bytes_out=50.0)


def test_a_clock_that_was_set_back_begins_anew() -> None:
    traffic = TrafficState()
    produce(traffic, 3_600 * SECOND, records=100)
    assert traffic.rates(0.0) == TrafficRates(0.0, 0.0, 0.0)
    produce(traffic, 10 * SECOND, records=30)
    assert traffic.rates(10 * SECOND).records_in == 3.0
