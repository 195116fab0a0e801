"""The verdict of `make bench-compare`: what got worse, and what nobody can say."""

import pytest

from benchmarks.compare import figures, flat, table

CPU = "produce / tiered / broker_cpu_s_per_gb"


def turns(name: str, *values: float) -> list[dict[str, float]]:
    return [{name: value} for value in values]


@pytest.mark.parametrize(
    ("name", "here", "is_worse"),
    [
        (CPU, 1.02, False),
        (CPU, 1.04, True),
        (CPU, 0.5, False),
        ("replication / p99_ms", 1.04, False),
        ("replication / p99_ms", 1.06, True),
        ("ready_s", 1.06, True),
        ("idle_rss_mb", 1.06, True),
        ("produce / tiered / mb_per_s", 0.5, False),
    ],
)
def test_cpu_may_be_three_percent_worse_and_latency_start_and_memory_five(
    name: str, here: float, is_worse: bool
) -> None:
    (figure,) = figures(turns(name, 1.0, 1.0), turns(name, here, here))
    assert figure.is_worse is is_worse
    assert ("WORSE" in table([figure])) is is_worse


def test_what_turns_of_one_tree_differ_by_themselves_is_told_as_noise() -> None:
    (figure,) = figures(turns(CPU, 1.0, 1.3, 1.0), turns(CPU, 1.1, 1.1, 1.1))
    assert figure.is_worse
    assert figure.is_noise
    assert "worse, within the noise" in table([figure])


def test_a_figure_that_one_tree_does_not_have_is_left_out() -> None:
    assert figures([{CPU: 1.0, "new": 2.0}], [{CPU: 1.0}])[0].name == CPU


def test_the_reference_and_the_client_are_not_compared() -> None:
    medians = {"produce": {"tiered": {"mb_per_s": 2, "client_cpu_s_per_gb": 1}, "mock": {"mb_per_s": 1}}, "ready_s": 1}
    assert dict(flat(medians)) == {"produce / tiered / mb_per_s": 2.0, "ready_s": 1.0}
