"""Moments at which segments are closed early: so many an hour, in the order in which they were due."""

from tiered.rules.pacing.early_closes import AT_ONCE, HOUR_MS, EarlyClosesState


def test_a_hundred_after_a_quiet_time_go_at_once_and_the_others_at_the_rate() -> None:
    closes = EarlyClosesState()
    places = [closes.place_ms(key, 5.0, per_hour=3600) for key in range(AT_ONCE + 3)]
    assert places == [5.0] * AT_ONCE + [1005.0, 2005.0, 3005.0]


def test_no_hour_has_more_than_the_bound_and_those_of_a_quiet_time() -> None:
    closes = EarlyClosesState()
    # A thousand more are due each minute than may be closed.
    places = sorted(
        closes.place_ms((minute, n), minute * 60_000, per_hour=3600) for minute in range(60) for n in range(1000)
    )
    first_of_hour = 0
    for last, place_ms in enumerate(places):
        while places[first_of_hour] <= place_ms - HOUR_MS:
            first_of_hour += 1
        assert last - first_of_hour < 3600 + AT_ONCE


def test_a_place_is_kept_until_it_is_given_back_and_comes_behind_all_others_then() -> None:
    closes = EarlyClosesState()
    for key in range(AT_ONCE):
        closes.place_ms(key, 0.0, per_hour=3600)
    assert closes.place_ms("a", 0.0, per_hour=3600) == 1000.0
    assert closes.place_ms("b", 0.0, per_hour=3600) == 2000.0
    assert closes.place_ms("a", 900.0, per_hour=3600) == 1000.0
    closes.give_back("a")
    assert closes.place_ms("a", 900.0, per_hour=3600) == 3000.0
    for key in (*range(AT_ONCE), "a", "b"):
        closes.give_back(key)
    assert len(closes) == 0
