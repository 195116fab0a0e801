"""Whether somebody who is called often is away is known from the newest call."""

from tiered.metrics import CallTimes


def test_nobody_is_away_before_the_first_call() -> None:
    assert not CallTimes().is_failing


def test_one_answer_ends_a_row_of_failures() -> None:
    times = CallTimes()
    times.observe("get", 1.0, failed=False)
    times.observe("put", 1.0, failed=True)
    times.observe("put", 1.0, failed=True)
    was_failing = times.is_failing
    times.observe("get", 1.0, failed=False)
    assert (was_failing, times.is_failing) == (True, False)
    assert times.failures() == {"get": 0, "put": 2}
